"""What is remembered of pods' counters: whatever they and clocks do, nothing is counted that did not happen."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.judge.counts import Window
from tailhold_operator.judge.reading import Counter
from tailhold_operator.judge.watched import Look, Watched
from tailhold_operator.judge.windows import Reading
from tailhold_operator.observe import Pod, read_pod
from tailhold_operator.watch.memory import Memory, Moment, _Stamped, aged

START = datetime(2026, 1, 1, tzinfo=UTC)
OURS = Counter("r", "o")


def moment(ticks: float, ahead: float = 0) -> Moment:
    """So many seconds after the start; `ahead` is by how much the machine's clock is wrong."""
    return Moment(START + timedelta(seconds=ticks + ahead), 1000 + ticks)


def pod(uid: str, ready: bool = True, since: float = -3600, restarts: int = 0, ready_text: str = "") -> Pod:
    manifest = {"metadata": {"name": uid, "uid": uid}, "spec": {}, "status": {}}
    text = ready_text or (START + timedelta(seconds=since)).isoformat()
    return replace(read_pod(manifest), ready=ready, ready_since=text, restarts=restarts)


def told(**totals: float) -> dict[str, dict[Counter, Reading]]:
    """The same counter of each pod."""
    return {uid: {OURS: Reading(total, 0)} for uid, total in totals.items()}


def total(watched: Watched, counter: Counter = OURS) -> float:
    found = (look.windows.get(counter.revision, {}).get(counter.objective) for look in watched.looks)
    return sum(each.total for each in found if each)


def seen(memory: Memory, ticks: float, counters: Mapping[str, Mapping[Counter, Reading]], *pods: Pod) -> None:
    memory.meet(pods, moment(ticks))
    memory.take(counters, moment(ticks))


REQUESTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 50))


@given(st.lists(REQUESTS, max_size=400))
def test_what_all_pods_counted_after_the_first_look_is_what_is_known(looks: list[dict[str, int]]) -> None:
    """Over half an hour and more, so that old looks are joined."""
    memory, pods = Memory(), [pod(uid) for uid in "abc"]
    counters = dict.fromkeys("abc", 1000)
    seen(memory, 0, told(**counters), *pods)
    for number, look in enumerate(looks, 1):
        counters = {uid: count + look.get(uid, 0) for uid, count in counters.items()}
        seen(memory, number * 5, told(**counters), *pods)
    assert total(memory.watched(moment(len(looks) * 5))) == sum(counters.values()) - 3000


def test_a_pod_that_is_met_has_counted_before_and_one_that_goes_takes_nothing_back() -> None:
    memory = Memory()
    seen(memory, 0, told(a=10), pod("a"))
    seen(memory, 5, told(a=20, b=500), pod("a"), pod("b"))
    seen(memory, 10, told(b=507), pod("b"))
    assert total(memory.watched(moment(10))) == 10 + 7


def test_a_pod_that_started_again_counts_from_there_on() -> None:
    memory = Memory()
    seen(memory, 0, told(a=100), pod("a"))
    seen(memory, 5, told(a=3), pod("a"))
    seen(memory, 10, told(a=8), pod("a"))
    assert total(memory.watched(moment(10))) == 5


def test_a_restart_that_kubelet_tells_of_is_one_whatever_the_counters_say() -> None:
    memory = Memory()
    seen(memory, 0, told(a=100), pod("a"))
    seen(memory, 5, told(a=900), pod("a", restarts=1))
    assert total(memory.watched(moment(5))) == 0


class TestWarmUp:
    """C36."""

    def test_the_first_half_minute_of_a_ready_pod_is_left_out(self) -> None:
        memory = Memory()
        seen(memory, 0, {}, pod("a", ready=False))
        for ticks, count in ((5, 0), (15, 10), (25, 20), (40, 40), (45, 45)):
            seen(memory, ticks, told(a=count), pod("a"))
        assert total(memory.watched(moment(45))) == 5

    def test_one_that_loses_its_readiness_is_not_cold_again(self) -> None:
        """It is slow just then."""
        memory = Memory()
        seen(memory, 0, told(a=100), pod("a"))
        seen(memory, 5, told(a=110), pod("a", ready=False, since=4))
        seen(memory, 10, told(a=120), pod("a", since=9))
        assert total(memory.watched(moment(10))) == 20

    @pytest.mark.parametrize("text", ["", "soon", "2026-01-01T00:10:00Z", "2027-01-01T00:00:00Z"])
    def test_a_kubelet_whose_clock_is_ahead_keeps_nobody_cold_for_long(self, text: str) -> None:
        memory = Memory()
        for ticks in range(0, 65, 5):
            seen(memory, ticks, told(a=100 + ticks), pod("a", ready_text=text or "-"))
        assert total(memory.watched(moment(60))) == 30

    def test_a_slow_pod_that_stays_slow_is_seen(self) -> None:
        memory = Memory()
        for ticks in range(0, 600, 5):
            seen(memory, ticks, {"a": {OURS: Reading(ticks, ticks)}}, pod("a", since=0))
        found = [look.windows["r"]["o"] for look in memory.watched(moment(600)).looks]
        assert sum(each.bad for each in found) == 595 - 30


class TestNewCounters:
    """C45."""

    def test_the_first_requests_of_a_candidate_are_counted(self) -> None:
        """A pod that is known begins to hand over: what it says then, it began from nothing."""
        memory, candidate = Memory(), Counter("c", "o")
        seen(memory, 0, told(a=10), pod("a"))
        seen(memory, 5, {"a": {OURS: Reading(20, 0), candidate: Reading(7, 7)}}, pod("a"))
        assert memory.watched(moment(5)).looks[-1].windows["c"]["o"] == Window(7, 7)

    def test_a_counter_that_was_away_goes_on_from_where_it_was(self) -> None:
        memory, candidate = Memory(), Counter("c", "o")
        both = {OURS: Reading(10, 0), candidate: Reading(70, 0)}
        seen(memory, 0, {"a": both}, pod("a"))
        seen(memory, 5, told(a=10), pod("a"))
        seen(memory, 10, {"a": both | {candidate: Reading(72, 0)}}, pod("a"))
        assert total(memory.watched(moment(10)), candidate) == 2

    def test_a_revision_without_a_request_is_missing(self) -> None:
        memory = Memory()
        seen(memory, 0, told(a=10), pod("a"))
        seen(memory, 5, told(a=10), pod("a"))
        assert memory.watched(moment(5)).looks == ()


class TestBlindness:
    def test_it_is_blind_before_the_first_time_and_without_pods(self) -> None:
        memory = Memory()
        assert memory.watched(moment(0)).is_blind(moment(0).at)
        memory.meet([pod("a")], moment(0))
        assert memory.watched(moment(0)).is_blind(moment(0).at)
        memory.take(told(a=1), moment(1))
        assert not memory.watched(moment(2)).is_blind(moment(2).at)
        memory.meet([], moment(3))
        assert memory.watched(moment(3)).is_blind(moment(3).at)

    def test_one_ready_pod_of_many_that_cannot_be_read_is_enough_after_half_a_minute(self) -> None:
        memory, pods = Memory(), [pod(uid) for uid in "abcd"]
        seen(memory, 0, told(a=1, b=1, c=1, d=1), *pods)
        for ticks in range(5, 35, 5):
            seen(memory, ticks, told(a=1, b=1, c=1), *pods)
        assert not memory.watched(moment(30)).is_blind(moment(30).at)
        assert memory.watched(moment(31)).is_blind(moment(31).at)
        seen(memory, 35, told(d=1), *pods)
        assert not memory.watched(moment(35)).is_blind(moment(35).at)

    def test_a_pod_that_is_not_ready_any_more_blinds_nobody(self) -> None:
        memory = Memory()
        seen(memory, 0, told(a=1, b=1), pod("a"), pod("b"))
        seen(memory, 60, told(a=1), pod("a"), pod("b", ready=False))
        assert not memory.watched(moment(60)).is_blind(moment(60).at)

    def test_a_pod_that_has_just_become_ready_is_given_time(self) -> None:
        memory = Memory()
        seen(memory, 0, told(a=1), pod("a"), pod("b", ready=False))
        seen(memory, 100, told(a=1), pod("a"), pod("b", since=99))
        assert not memory.watched(moment(100)).is_blind(moment(100).at)

    @pytest.mark.parametrize("ahead", [-86400, -600, 600, 86400])
    def test_a_clock_that_jumps_blinds_nobody_and_hides_no_blindness(self, ahead: float) -> None:
        memory = Memory()
        seen(memory, 0, told(a=1), pod("a"))
        jumped = moment(10, ahead)
        assert not memory.watched(jumped).is_blind(jumped.at)
        later = moment(31, ahead)
        assert memory.watched(later).is_blind(later.at)


class TestClocks:
    def test_looks_of_a_clock_that_was_ahead_count_for_no_step_that_began_after_them(self) -> None:
        memory = Memory()
        for ticks in (0, 5, 10):
            memory.meet([pod("a")], moment(ticks, 600))
            memory.take(told(a=ticks), moment(ticks, 600))
        watched = memory.watched(moment(20))
        assert total(watched) == 10
        assert not [look for look in watched.looks if look.at > moment(20).at]

    @given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from([-600, 0, 600])), min_size=2, max_size=60))
    def test_whatever_the_clock_does_no_look_is_later_than_it_was(self, looks: list[tuple[int, int]]) -> None:
        memory, count = Memory(), 0
        for number, (requests, ahead) in enumerate(looks):
            count += requests
            memory.meet([pod("a")], moment(number * 5, ahead))
            memory.take(told(a=count), moment(number * 5, ahead))
        since = len(looks) * 5
        watched = memory.watched(moment(since))
        assert all(look.at < moment(since).at for look in watched.looks)
        assert total(watched) == count - looks[0][0]


WINDOWS = st.builds(
    lambda good, bad, slow: Window(good + bad, bad, tuple(slow)),
    st.integers(0, 99),
    st.integers(0, 9),
    st.lists(st.integers(0, 9), max_size=2),
)


@given(st.lists(st.tuples(st.integers(1, 900), st.sampled_from("rs"), WINDOWS), max_size=80))
def test_joining_looks_changes_no_total_and_takes_none_for_younger(looks: list[tuple[int, str, Window]]) -> None:
    stamped, ticks = [], 0.0
    for step, revision, window in looks:
        ticks += step
        stamped.append(_Stamped(ticks, Look(moment(ticks).at, {revision: {"o": window}})))
    for revision in "rs":
        totals = [
            (sum(each.total for each in found), sum(each.bad for each in found))
            for kept in (stamped, aged(stamped, ticks), aged(aged(stamped, ticks - 60), ticks))
            if (found := [look.windows[revision]["o"] for _, look in kept if revision in look.windows]) is not None
        ]
        assert len(set(totals)) == 1
    assert {look.at for _, look in aged(stamped, ticks)} <= {look.at for _, look in stamped}


def test_a_day_of_a_busy_pipeline_takes_little_memory() -> None:
    """Two objectives, two revisions, requests in each look; how many pods there are makes no difference."""
    counters = [Counter(revision, objective) for revision in "rs" for objective in "op"]
    tracemalloc.start()
    memory = Memory()
    memory.meet([pod("a")], moment(0))
    for number in range(17_280):
        read = Reading(number * 72, number * 8, (number * 9,) * 9)
        memory.take({"a": dict.fromkeys(counters, read)}, moment(number * 5))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(memory.watched(moment(86_400)).looks) < 450
    assert size < 2_000_000, size
