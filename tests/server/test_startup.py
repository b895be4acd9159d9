"""The order of a start, its times, and how it fails."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_server import SNAPSHOT, content_part, pod_part

from tailhold_api.conditions import Reason
from tailhold_server.backends import Backend
from tailhold_server.errors import ContentRefusedError, StartError
from tailhold_server.health import Phase
from tailhold_server.pages import read_ahead
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.start import start_with
from tailhold_server.startup import Span, Timeline, apart, table
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInEngine, StandInTokenizer, stand_in_index

INDEX = stand_in_index([StandInDocument("Hours", "The office closes at 18:00.")], SNAPSHOT)
SETTINGS = ServerSettings()


class ToldEngine(StandInEngine):
    """Says when it starts and when it is stopped."""

    def __init__(self, told: list[str], **given: Any) -> None:
        super().__init__(**given)
        self.told = told

    async def start(self) -> None:
        self.told.append("engine")
        await super().start()

    async def stop(self) -> None:
        self.told.append("engine stopped")
        await super().stop()


def backend(told: list[str], engine: StandInEngine | None = None, **others: Any) -> Backend:
    def load(name: str, made: Callable[[], Any]) -> Callable[..., Any]:
        def call(*_: Any) -> Any:
            told.append(name)
            return made()

        return call

    given = {
        "load_encoder": load("encoder", StandInEncoder),
        "load_tokenizer": load("tokenizer", StandInTokenizer),
        "opener": load("snapshot", lambda: INDEX),
        "engine": engine or ToldEngine(told),
        "import_libraries": load("import", lambda: None),
        "store": Path("/nonexistent"),
    }
    return Backend(**{**given, **others})


async def started(given: Backend) -> Service:
    service = Service(pod_part())
    await (await start_with(given, service, content_part(), SETTINGS)).close()
    return service


async def test_on_a_gpu_the_engine_takes_its_memory_after_encoder_and_index() -> None:
    told: list[str] = []
    await started(backend(told, engine_takes_the_rest=True))
    assert told[0] == "import"
    assert told.index("encoder") < told.index("snapshot") < told.index("engine")


async def test_elsewhere_the_engine_waits_for_nobody() -> None:
    told: list[str] = []
    may_load = threading.Event()

    def encoder() -> StandInEncoder:
        assert may_load.wait(20)
        return StandInEncoder()

    class First(ToldEngine):
        async def start(self) -> None:
            await super().start()
            may_load.set()

    service = await started(backend(told, First(told), load_encoder=encoder))
    rows = {row.name: row for row in service.timeline.rows()}
    assert rows["loadEncoder"].overlapped > 0 or rows["startEngine"].milliseconds == 0
    assert service.phase is Phase.SERVING


async def test_the_first_error_ends_the_start_and_the_engine_and_nobody_waits_for_a_slow_thread() -> None:
    """Fail fast: an encoder that loads for an hour does not hide that the engine cannot start."""
    told: list[str] = []
    for_ever = threading.Event()

    def slow() -> StandInEncoder:
        for_ever.wait(30)
        raise AssertionError("nobody asked for this any more")

    try:
        async with asyncio.timeout(10):
            with pytest.raises(StartError, match="no memory for the cache"):
                await started(backend(told, ToldEngine(told, start_error="no memory for the cache"), load_encoder=slow))
    finally:
        for_ever.set()
    assert told[-1] == "engine stopped"


async def test_an_engine_that_started_ends_with_the_start_that_fails_beside_it() -> None:
    told: list[str] = []

    def refuse(_: str) -> Any:
        raise ContentRefusedError("not this one")

    with pytest.raises(StartError) as failed:
        await started(backend(told, opener=refuse))
    assert failed.value.reason is Reason.SNAPSHOT_REFUSED
    assert told[-1] == "engine stopped"


async def test_a_start_that_is_cancelled_ends_its_engine() -> None:
    told: list[str] = []
    starting = asyncio.ensure_future(started(backend(told, ToldEngine(told, start_seconds=60))))
    while "engine" not in told:  # noqa: ASYNC110  a list tells nobody
        await asyncio.sleep(0.001)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert told[-1] == "engine stopped"


async def test_libraries_are_imported_before_anything_is_loaded_and_by_one_thread() -> None:
    told: list[str] = []
    await started(backend(told))
    assert told[0] == "import"
    assert told.count("import") == 1


SPANS = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda each: Span("s", min(each), max(each))), max_size=8
)


@given(SPANS)
def test_a_step_overlaps_others_for_as_many_milliseconds_as_one_of_them_ran_too(spans: list[Span]) -> None:
    known = sorted(spans, key=lambda span: (span.began, span.ended))
    for at, (span, row) in enumerate(zip(known, table(spans), strict=True)):
        beside = [other for place, other in enumerate(known) if place != at]
        shared = sum(
            any(other.began <= moment < other.ended for other in beside)
            for moment in range(int(span.began), int(span.ended))
        )
        assert (row.began, row.milliseconds, row.overlapped) == (span.began, span.ended - span.began, shared)


def test_the_furthest_step_that_runs_is_shown() -> None:
    shown: list[Phase] = []
    timeline = Timeline(shown.append)
    with timeline.step(Phase.START_ENGINE):
        with timeline.step(Phase.LOAD_ENCODER):
            pass
        with timeline.step(Phase.WARM_UP):
            pass
    assert shown == [Phase.START_ENGINE, Phase.START_ENGINE, Phase.START_ENGINE, Phase.WARM_UP, Phase.START_ENGINE]


def test_a_step_that_failed_is_told() -> None:
    timeline = Timeline(lambda _: None)
    with pytest.raises(OSError, match="disk"), timeline.step(Phase.LOAD_ENCODER):
        raise OSError("disk")
    assert [row.name for row in timeline.rows()] == ["loadEncoder"]


async def test_work_apart_gives_its_result_or_its_error() -> None:
    assert await apart(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await apart(lambda: 1 // 0)


def test_files_are_read_ahead_unless_they_would_push_each_other_out(tmp_path: Any) -> None:
    files = [tmp_path / name for name in ("a", "b", "gone")]
    for path in files[:2]:
        path.write_bytes(b"x" * 1000)
    assert read_ahead(files, 2000) == 2000
    assert read_ahead(files, 1999) == 0


@pytest.mark.parametrize(("work", "told"), [("never.wait", ""), ("int", "the end of the interpreter")])
def test_a_program_ends_with_its_code_also_where_a_thread_still_works(work: str, told: str) -> None:
    """What the interpreter does at its end is left out then: a thread in C++ would abort it."""
    program = f"""
import asyncio, atexit, sys, threading
from tailhold_server.startup import apart, left
never = threading.Event()
async def main():
    work = asyncio.ensure_future(apart({work}))
    await asyncio.sleep(0)
    if not never.wait(0.2) and {work!r} == "int":
        await work
    return 7
atexit.register(print, "the end of the interpreter")
sys.exit(left(asyncio.run(main())))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (7, told), ended.stderr
