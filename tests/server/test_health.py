"""What the probes answer."""

from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_server.health import Phase, StallClock, Verdict, judge_alive, judge_engine, judge_ready, judge_started
from tailhold_server.ports import Delta, EngineProgress

GOOD, BAD = Verdict(True, ""), Verdict(False, "")
LOADING = (Phase.RESOLVE, Phase.LOAD_ENCODER, Phase.LOAD_SNAPSHOT, Phase.START_ENGINE, Phase.WARM_UP)


@pytest.mark.parametrize("phase", LOADING)
def test_a_pod_that_loads_is_alive_and_not_ready(phase: Phase) -> None:
    """C100: liveness does not end a start, however long it takes."""
    assert judge_alive(phase, BAD).ok
    assert not judge_started(phase).ok
    assert not judge_ready(phase, GOOD).ok


@given(st.sampled_from(Phase), st.booleans())
def test_ready_is_serving_with_an_engine_that_moves_and_nothing_else(phase: Phase, engine_ok: bool) -> None:
    assert judge_ready(phase, Verdict(engine_ok, "")).ok == (phase is Phase.SERVING and engine_ok)


def test_a_draining_server_is_alive_and_not_ready() -> None:
    """C67."""
    assert judge_alive(Phase.DRAINING, GOOD).ok
    assert not judge_ready(Phase.DRAINING, GOOD).ok


def test_an_idle_engine_may_be_silent_for_ever_and_a_busy_one_may_not() -> None:
    idle, busy = EngineProgress(0, 5, last_token_at=0.0), EngineProgress(1, 5, last_token_at=0.0)
    assert judge_engine(True, idle, now=1e6, stall_seconds=60).ok
    assert judge_engine(True, busy, now=60, stall_seconds=60).ok
    assert not judge_engine(True, busy, now=61, stall_seconds=60).ok
    assert not judge_engine(False, idle, now=0, stall_seconds=60).ok


async def test_the_stall_clock_runs_while_somebody_waits_for_the_engine() -> None:
    now = 0.0
    seen: list[EngineProgress] = []

    async def engine() -> AsyncGenerator[Delta, None]:
        nonlocal now
        for tokens in (1, 0, 2):
            now += 10
            seen.append(clock.progress())
            yield Delta("", tokens)

    clock = StallClock(lambda: now)
    async for _ in clock.watched(engine()):
        seen.append(clock.progress())
        now += 100  # the reader's time
    assert seen == [
        EngineProgress(1, 0, last_token_at=0),
        EngineProgress(0, 1, last_token_at=10),
        EngineProgress(1, 1, last_token_at=110),
        EngineProgress(0, 1, last_token_at=110),
        EngineProgress(1, 1, last_token_at=220),
        EngineProgress(0, 3, last_token_at=230),
    ]
    assert clock.progress().running == 0
