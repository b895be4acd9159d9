"""What the probes answer, and what the watch over the engine makes of its looks."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_server.health import (
    Look,
    Phase,
    Verdict,
    Watch,
    advance,
    judge_alive,
    judge_engine,
    judge_ready,
    judge_started,
    patience,
)

GOOD, BAD = Verdict(True, ""), Verdict(False, "")
OVER = (Phase.SERVING, Phase.RETIRING, Phase.DRAINING, Phase.FAILED)
LOADING = tuple(phase for phase in Phase if phase not in OVER)
LIMITS = {"stall_seconds": 10.0, "patience_seconds": 60.0}


@pytest.mark.parametrize("phase", LOADING)
def test_a_pod_that_loads_is_alive_and_not_ready(phase: Phase) -> None:
    """C100: liveness does not end a start, however long it takes."""
    assert judge_alive(phase, BAD).ok
    assert not judge_started(phase).ok
    assert not judge_ready(phase, GOOD).ok


@given(st.sampled_from(Phase), st.booleans())
def test_ready_is_serving_with_an_engine_that_moves_and_nothing_else(phase: Phase, engine_ok: bool) -> None:
    assert judge_ready(phase, Verdict(engine_ok, "")).ok == (phase is Phase.SERVING and engine_ok)


@pytest.mark.parametrize("phase", [Phase.RETIRING, Phase.DRAINING])
def test_a_server_that_was_told_to_stop_is_alive_and_not_ready(phase: Phase) -> None:
    """C67."""
    assert judge_alive(phase, GOOD).ok
    assert judge_started(phase).ok
    assert not judge_ready(phase, GOOD).ok


def watched(looks: list[tuple[float, Look]]) -> Watch:
    """What looks after so many seconds each add up to."""
    watch, now = Watch(0.0), 0.0
    for after, look in looks:
        now += after
        watch = advance(watch, look, now=now, most_seconds=2.0)
    return watch


def is_fine(watch: Watch) -> bool:
    return judge_engine(True, watch, **LIMITS).ok


SILENT = Look(5, 2, waiting=1)
LOOKS = st.builds(
    Look,
    tokens=st.integers(0, 3),
    beats=st.integers(0, 3),
    waiting=st.integers(0, 2),
    beat_waits=st.booleans(),
    at_work=st.booleans(),
    stopped=st.booleans(),
)
LIVES = st.lists(st.tuples(st.floats(0, 100), LOOKS), max_size=40)


@pytest.mark.parametrize(
    ("look", "seconds"),
    [
        (SILENT, 10),
        (Look(5, 2, beat_waits=True), 10),
        (Look(5, 2, waiting=3, beat_waits=True), 10),
        (Look(5, 2, stopped=True), 10),
        (Look(5, 2, waiting=1, at_work=True, stopped=True), 10),
        (Look(5, 2, waiting=1, beat_waits=True, at_work=True), 60),
        (Look(5, 2, beat_waits=True, at_work=True), 60),
    ],
    ids=["streams", "idle", "both", "stopped while idle", "stopped", "computes without end", "idle and busy"],
)
def test_an_engine_that_stands_still_is_noticed_after_ten_seconds_and_one_that_works_after_sixty(
    look: Look, seconds: int
) -> None:
    before = (1.0, Look(5, 2))
    assert is_fine(watched([before, *[(1.0, look)] * (seconds - 1)]))
    assert not is_fine(watched([before, *[(1.0, look)] * seconds]))


@given(LIVES, st.integers(1, 1000))
def test_an_idle_engine_that_answers_its_heartbeats_may_be_silent_for_ever(life: list, idle: int) -> None:
    beats = [(3.0, Look(9, 10 + count, beat_waits=True)) for count in range(idle)]
    assert is_fine(watched([*life, *beats]))


@given(LIVES, st.integers(1, 500))
def test_an_engine_that_gives_tokens_is_fine_whatever_it_was_before(life: list, more: int) -> None:
    assert is_fine(watched([*life, *((2.0, Look(10 + count, 0, waiting=2)) for count in range(more))]))


@given(LIVES)
def test_time_in_which_nobody_looked_is_no_evidence(life: list) -> None:
    """A server that was itself starved or suspended for an hour does not give up its engine when it wakes."""
    watch = watched(life)
    later = advance(watch, SILENT, now=watch.seen_at + 3600, most_seconds=2.0)
    assert later.still_seconds <= watch.still_seconds + 2
    assert later.fruitless_seconds <= watch.fruitless_seconds + 2


@given(LIVES)
def test_an_engine_that_is_asked_for_nothing_is_fine(life: list) -> None:
    assert is_fine(watched([*life, (1.0, Look(10, 10))]))


@given(LIVES, LOOKS)
def test_work_never_makes_the_verdict_worse(life: list, look: Look) -> None:
    idle, busy = replace(look, at_work=False), replace(look, at_work=True)
    before = watched(life)
    after = [advance(before, each, now=before.seen_at + 1, most_seconds=2.0) for each in (idle, busy)]
    assert after[1].still_seconds <= after[0].still_seconds
    assert is_fine(after[1]) or not is_fine(after[0])


def test_an_engine_whose_process_ended_is_dead_whatever_it_did() -> None:
    assert not judge_engine(False, watched([(1.0, Look(5, 2))]), **LIMITS).ok


@pytest.mark.parametrize(("rate", "seconds"), [(None, 60), (5000.0, 60), (100.0, 320)])
def test_patience_grows_with_the_longest_prompt_of_a_slow_engine(rate: float | None, seconds: float) -> None:
    """8,000 tokens at 100 a second are 80 s without a token, and no stall."""
    assert patience(60, 8000, rate) == seconds
