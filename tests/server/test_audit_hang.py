"""A disk that does not come back: nobody waits for it twice, and nothing is held for those who left."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rag_server import Running, content_part, running

from tailhold_api.audit import OnFailure, Recording
from tailhold_api.slo import Objective, ObjectiveMetric
from tailhold_server.audit import segment
from tailhold_server.audit.auditor import ChainAuditor, Patience
from tailhold_server.audit.journal import Journal, NotRecordedError
from tailhold_server.errors import ServeError

SECONDS = 0.2
"""How long these tests' disk is waited for."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Cleared, it hangs."""
    moves, really = threading.Event(), os.fdatasync
    moves.set()

    def sync(descriptor: int) -> None:
        moves.wait()
        really(descriptor)

    monkeypatch.setattr(segment.os, "fdatasync", sync)
    return moves


@asynccontextmanager
async def audited(folder: Path, on_failure: OnFailure, seconds: float = SECONDS) -> AsyncIterator[Running]:
    async with running(content=content_part(recording=Recording(on_failure=on_failure))) as server:
        service = server.service
        journal = Journal(folder / "docs" / "pod-0", {"pod": "pod-0"}, lambda: 365, service.telemetry)
        journal.open()
        journal.start()
        service.auditor = ChainAuditor(journal, service.pod_digest, Patience(seconds))
        yield server
        await service.auditor.close()


async def let_go(server: Running) -> None:
    """Returns once nothing is held, and does not return while the disk has to come back for that."""
    async with asyncio.timeout(5):
        while server.service.held or server.service.objectives._open:  # noqa: ASYNC110  numbers, no event
            await asyncio.sleep(0.001)


async def test_clients_that_leave_while_the_disk_hangs_hold_no_place(tmp_path: Path, disk: threading.Event) -> None:
    async with audited(tmp_path, OnFailure.REFUSE, seconds=30) as server:
        server.service.objectives.keep([Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=60000)])
        disk.clear()
        asked = [asyncio.ensure_future(server.ask()) for _ in range(8)]
        while server.service.held < 8:  # noqa: ASYNC110  a number, no event
            await asyncio.sleep(0.001)
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await let_go(server)
        disk.set()
        assert (await server.ask()).status_code == 200


async def test_a_client_that_leaves_while_its_failure_is_recorded_holds_no_place(
    tmp_path: Path, disk: threading.Event
) -> None:
    """The wait that is over raises ServeError, and the failure's own record is waited for next."""
    async with audited(tmp_path, OnFailure.REFUSE) as server:
        engine = server.engine
        disk.clear()
        asked = asyncio.ensure_future(server.ask(stream=True))
        while server.service.held < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        engine.kill()
        await asyncio.sleep(SECONDS / 4)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await let_go(server)
        disk.set()


@pytest.mark.parametrize(("on_failure", "status"), [(OnFailure.REFUSE, 503), (OnFailure.CONTINUE, 200)])
async def test_a_disk_that_hangs_is_waited_for_once(
    tmp_path: Path, disk: threading.Event, on_failure: OnFailure, status: int
) -> None:
    async with audited(tmp_path, on_failure) as server:
        loop = asyncio.get_running_loop()
        disk.clear()
        began = loop.time()
        assert (await server.ask()).status_code == status
        first = loop.time()
        for _ in range(5):
            assert (await server.ask(stream=True)).status_code == status
        rest = loop.time() - first
        disk.set()
        while not server.service.auditor._patience._late.done():  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await server.ask()).status_code == 200
    assert first - began >= SECONDS, "it was waited for"
    assert rest < 5 * (first - began), "and not again for each answer"


async def test_patience_ends_and_comes_back() -> None:
    patience, loop = Patience(0.01), asyncio.get_running_loop()
    late, next_ = loop.create_future(), loop.create_future()
    with pytest.raises(ServeError):
        await patience.on_disk(late, OnFailure.REFUSE)
    assert not await patience.on_disk(next_, OnFailure.CONTINUE)
    done = loop.create_future()
    done.set_result(None)
    assert await patience.on_disk(done, OnFailure.REFUSE), "what is on the disk is, also while another hangs"
    late.set_exception(NotRecordedError("gone"))
    next_.set_result(None)
    assert await patience.on_disk(next_, OnFailure.REFUSE)
