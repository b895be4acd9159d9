"""A volume of uploads that hangs: nothing else does, who asks for uploads is let go, and it heals by itself."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from rag_server import Running, body, pod_part, running

from tailhold_server import start
from tailhold_server.deletions import take_deletions
from tailhold_server.errors import ServeError, StartError
from tailhold_server.routes import internal
from tailhold_server.settings import ServerSettings
from tailhold_server.uploads.folder import COMING, Folder
from tailhold_server.uploads.incoming import Incoming
from tailhold_server.uploads.known import Known
from tailhold_server.uploads.threads import THREADS, VolumeThreads

SHORT = ServerSettings(uploads_seconds=0.1)


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """Set once the volume answers."""
    event = threading.Event()
    yield event
    event.set()


def hang(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, answers: threading.Event) -> None:
    works = getattr(kind, name)

    def waits(*given: Any) -> Any:
        answers.wait(30)
        return works(*given)

    monkeypatch.setattr(kind, name, waits)


async def post(server: Running) -> httpx.Response:
    form = {"file": ("a.txt", b"x"), "purpose": (None, "assistants")}
    return await server.public.post("/v1/files", files=form)


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
FILTER = {"type": "eq", "key": "source", "value": "b"}
OTHERS: dict[str, Callable[[Running], Awaitable[Any]]] = {
    "a question": lambda server: server.ask(),
    "a long question": lambda server: server.ask("x" * 17000),
    "a question with a schema": lambda server: server.public.post(
        "/v1/chat/completions", json=body(response_format=SCHEMA)
    ),
    "a citation's link": lambda server: server.public.get("/v1/sources/" + "a" * 64),
    "a search with a filter": lambda server: server.public.post(
        "/v1/vector_stores/vs_docs/search", json={"query": "a", "filters": FILTER}
    ),
    "embeddings": lambda server: server.public.post("/v1/embeddings", json={"input": "a", "model": "docs"}),
    "what is in force": lambda server: server.internal.get("/v1/tuning"),
    "deletions": lambda server: take_deletions(server.service.contents),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_nothing_else_waits_for_uploads(
    other: Callable[[Running], Awaitable[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: threading.Event,
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    monkeypatch.setattr(internal, "_LOOK_SECONDS", 0.1)
    async with running(folder=tmp_path, settings=ServerSettings(uploads_seconds=20)) as server:
        hang(monkeypatch, Known, "look", answers)
        asked = [asyncio.ensure_future(server.public.get("/v1/files")) for _ in range(2 * THREADS)]
        await asyncio.wait(asked, timeout=0.1)
        async with asyncio.timeout(5):
            answer = await other(server)
        assert not isinstance(answer, httpx.Response) or answer.status_code < 500
        assert not any(each.done() for each in asked)
        answers.set()
        assert {(await each).status_code for each in asked} == {200}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_nothing_else_waits_for_a_file_that_is_published(
    other: Callable[[Running], Awaitable[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: threading.Event,
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    monkeypatch.setattr(internal, "_LOOK_SECONDS", 0.1)
    async with running(folder=tmp_path, settings=ServerSettings(uploads_seconds=20)) as server:
        hang(monkeypatch, Incoming, "_finish", answers)
        asked = [asyncio.ensure_future(post(server)) for _ in range(THREADS)]
        await asyncio.wait(asked, timeout=0.2)
        async with asyncio.timeout(5):
            answer = await other(server)
        assert not isinstance(answer, httpx.Response) or answer.status_code < 500
        assert not any(each.done() for each in asked)
        answers.set()
        assert {(await each).status_code for each in asked} == {200}


async def test_who_asks_for_uploads_is_let_go_until_the_volume_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(folder=tmp_path, settings=SHORT) as server:
        hang(monkeypatch, Known, "look", answers)
        for _ in range(2 * THREADS):
            refused = await server.public.get("/v1/files")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            assert "`corpus.uploads` does not answer" in refused.json()["error"]["message"]
        assert len([each for each in caplog.records if "does not answer" in each.getMessage()]) == 1
        answers.set()
        async with asyncio.timeout(5):
            while (await server.public.get("/v1/files")).status_code != 200:  # noqa: ASYNC110  until its threads are back
                await asyncio.sleep(0.01)


async def test_an_upload_that_hangs_is_let_go_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    async with running(folder=tmp_path, settings=SHORT) as server:
        hang(monkeypatch, Incoming, "_open", answers)
        async with asyncio.timeout(5):
            assert (await post(server)).status_code == 503
        answers.set()
        coming = tmp_path / "uploads" / COMING
        async with asyncio.timeout(5):
            while any(coming.iterdir()) or (await post(server)).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not any(coming.iterdir())


async def test_a_start_waits_no_longer_for_uploads_than_anybody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    hang(monkeypatch, Folder, "prepare", answers)
    async with asyncio.timeout(5), running(folder=tmp_path, settings=SHORT) as server:
        assert (await server.ask()).status_code == 200


async def test_a_start_names_the_volume_that_does_not_say_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: threading.Event
) -> None:
    hang(monkeypatch, start, "uploads_folder", answers)  # type: ignore[arg-type]
    with pytest.raises(StartError, match=r"`corpus.uploads` does not answer: check the claim 'uploads'") as failed:
        await start.check_uploads(pod_part(uploads=True), SHORT)
    assert not failed.value.final


async def test_where_all_threads_are_stuck_nobody_waits(answers: threading.Event) -> None:
    threads = VolumeThreads(0.01)
    for _ in range(THREADS):
        with pytest.raises(ServeError, match="does not answer"):
            await threads.run(lambda: answers.wait(30))
    with pytest.raises(ServeError, match="does not answer"):
        async with asyncio.timeout(5):
            await threads.run(lambda: None, seconds=3600)


async def test_callers_who_left_hold_no_more_than_the_threads(answers: threading.Event) -> None:
    threads = VolumeThreads(0.01)
    begun = list[int]()

    def hangs() -> None:
        begun.append(1)
        answers.wait(30)

    for _ in range(3 * THREADS):
        task = asyncio.ensure_future(threads.run(hangs))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    assert len(begun) <= THREADS
