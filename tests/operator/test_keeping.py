"""What is said about promises, and how seldom it is written."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import PROMISED, Stage, spec

from tailhold_api.slo import Slo
from tailhold_operator.judge.counts import Window
from tailhold_operator.judge.watched import Look, Watched
from tailhold_operator.keeping import Kept, kept

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "EndToEnd-900ms"
SLO = Slo.model_validate(PROMISED["slo"])


def watched(*minutes: tuple[float, float], read: bool = True) -> Watched:
    """Requests and bad ones of each minute, the last one just now."""
    looks = [
        Look(NOW - timedelta(minutes=ago, seconds=1), {"r": {NAME: Window(total, bad)}})
        for ago, (total, bad) in enumerate(reversed(minutes))
    ]
    return Watched(tuple(reversed(looks)), NOW if read else None, "" if read else "pod a: ConnectTimeout")


def said(seen: Watched, before: Kept | None = None) -> str:
    found = kept(before, SLO, seen, NOW, sampled=True)
    assert found
    return f"{found.finding.status} {found.finding.reason}"


def test_nothing_is_said_where_nothing_is_promised() -> None:
    assert kept(None, Slo(), watched(), NOW, sampled=True) is None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (watched(), "Unknown TooFewRequests"),
        (watched(*[(10, 0)] * 20), "Unknown TooFewRequests"),
        (watched(*[(10, 0)] * 40), "True ObjectivesMet"),
        (watched(*[(100, 1)] * 59), "True ObjectivesMet"),
        (watched(*[(100, 5)] * 59), "False ObjectiveBroken"),
        (watched(*[(5, 5)] * 10), "False ObjectiveBroken"),
        (watched((3, 3)), "Unknown TooFewRequests"),
        (watched(*[(100, 9)] * 20, *[(100, 0)] * 30), "True ObjectivesMet"),
        (watched(*[(1000, 0)] * 59, (1000, 60)), "True ObjectivesMet"),
        (watched(*[(100, 5)] * 59, read=False), "Unknown MetricsUnavailable"),
    ],
)
def test_what_is_said(seen: Watched, expected: str) -> None:
    assert said(seen) == expected


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    assert said(watched(*[(100, 50)] * 60, *[(100, 0)] * 61)) == "True ObjectivesMet"


def test_broken_stays_so_until_it_is_kept_by_far() -> None:
    broken = kept(None, SLO, watched(*[(100, 5)] * 59), NOW, sampled=True)
    assert said(watched(*[(100, 5)] * 50, *[(100, 1)] * 6), broken) == "False ObjectiveBroken"
    assert said(watched(*[(100, 5)] * 50, *[(100, 0)] * 6), broken) == "True ObjectivesMet"
    assert said(watched(*[(100, 5)] * 50, *[(1, 0)] * 6), broken) == "False ObjectiveBroken"


MINUTES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)), max_size=60).map(
    lambda drawn: [(float(total), float(min(total, bad))) for total, bad in drawn]
)


@given(MINUTES)
def test_a_second_look_at_the_same_says_the_same(minutes: list[tuple[float, float]]) -> None:
    first = kept(None, SLO, watched(*minutes), NOW, sampled=True)
    assert kept(first, SLO, watched(*minutes), NOW, sampled=True) is first


@given(MINUTES, MINUTES)
def test_between_the_seldom_looks_only_another_answer_is_news(
    before: list[tuple[float, float]], after: list[tuple[float, float]]
) -> None:
    first = kept(None, SLO, watched(*before), NOW, sampled=True)
    later = kept(first, SLO, watched(*after), NOW, sampled=False)
    assert first
    assert later
    assert (later is first) == (later.answer == first.answer)


def events(stage: Stage) -> list[str]:
    reasons = (each["reason"] for each in stage.cluster.of_kind("Event"))
    return [each for each in reasons if each.startswith("Objective")]


def served(**more: Any) -> Stage:
    stage = Stage()
    stage.put(spec(**PROMISED, **more))
    stage.settle()
    return stage


def goes(stage: Stage, minutes: int, good: int, bad: int = 0) -> None:
    """A pass whenever the watch asks for one."""
    woken: list[Any] = []
    stage.watch.wake = woken.append
    for _ in range(minutes * 12):
        stage.count(good, bad)
        stage.look()
        if woken:
            stage.step()
            woken.clear()


def test_the_watch_asks_for_a_pass_when_the_answer_changes_and_people_are_told() -> None:
    stage = served()
    goes(stage, 10, good=10)
    assert stage.condition("SLOMet") == ("True", "ObjectivesMet")
    assert events(stage) == []
    goes(stage, 10, good=8, bad=2)
    assert stage.condition("SLOMet") == ("False", "ObjectiveBroken")
    assert events(stage) == ["ObjectiveBroken"]
    assert stage.condition("Ready")[0] == "True"
    goes(stage, 65, good=10)
    assert stage.condition("SLOMet") == ("True", "ObjectivesMet")
    assert events(stage) == ["ObjectiveBroken", "ObjectivesMet"]


def test_figures_that_move_are_written_at_the_seldom_looks_alone() -> None:
    stage = served()
    goes(stage, 10, good=10)
    stage.step(sample=True)
    before, writes = stage.status()["slo"], len(stage.cluster.writes)
    goes(stage, 3, good=10)
    stage.step()
    assert stage.status()["slo"] == before
    assert len(stage.cluster.writes) == writes
    stage.step(sample=True)
    after = stage.status()["slo"]["objectives"][0]
    assert after["hour"]["requests"] == before["objectives"][0]["hour"]["requests"] + 3 * 12 * 10 * 2
    assert len(stage.cluster.writes) == writes + 1


def test_an_idle_pipeline_is_never_written() -> None:
    stage = served()
    goes(stage, 10, good=10)
    goes(stage, 70, good=0)
    stage.step(sample=True)
    writes = len(stage.cluster.writes)
    goes(stage, 70, good=0)
    stage.step(sample=True)
    assert len(stage.cluster.writes) == writes


def test_a_promise_that_is_taken_back_takes_the_condition_and_the_figures_along() -> None:
    stage = served()
    goes(stage, 2, good=10)
    assert stage.status()["slo"]["objectives"][0]["name"] == NAME
    stage.put(spec())
    stage.settle()
    assert "slo" not in stage.status()
    assert stage.described("SLOMet") == {}
