"""Requests counted against objectives."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from prometheus_client.core import HistogramMetricFamily

from tailhold_api.slo import Objective, ObjectiveMetric
from tailhold_server.objectives import Case, Counted, Taken, measured
from tailhold_server.stages import Marks

TTFT = Objective(metric=ObjectiveMetric.TIME_TO_FIRST_TOKEN, threshold_milliseconds=200)
REVISION = "0123456789-abcdef0123"
ALL = tuple(Objective(metric=metric, threshold_milliseconds=200) for metric in ObjectiveMetric)


def counts(objectives: Counted) -> dict[str, dict[str, float]]:
    """Of each objective, requests within each edge."""
    (family,) = objectives.collect()
    assert isinstance(family, HistogramMetricFamily)
    found: dict[str, dict[str, float]] = {}
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            assert sample.labels["revision"] == REVISION
            found.setdefault(sample.labels["objective"], {})[sample.labels["le"]] = sample.value
    return found


@pytest.mark.parametrize(
    ("outcome", "taken", "counted"),
    [
        ("ok", Taken(0.1, True), 0.1),
        ("ok", Taken(0.3, True), 0.3),
        ("failed", Taken(0.01, True), inf),
        ("shed", Taken(0.001, False), inf),
        ("client_closed", Taken(0.1, True), 0.1),
        ("client_closed", Taken(0.1, False), None),
        ("client_closed", Taken(0.3, False), inf),
        ("invalid", Taken(0.001, False), None),
        ("rejected", Taken(0.001, False), None),
    ],
)
def test_what_is_counted_of_a_request_that_ended_so(outcome: str, taken: Taken, counted: float | None) -> None:
    assert measured(taken, outcome, 0.2) == counted


@given(st.lists(st.integers(1, 3000), max_size=40))
def test_what_is_beyond_the_threshold_is_known_exactly(milliseconds: list[int]) -> None:
    now = [0.0]
    objectives = Counted(lambda: now[0])
    objectives.keep([TTFT])
    objectives.know(REVISION)
    for each in milliseconds:
        case = objectives.begin(REVISION)
        case.marks = Marks(case.began, first_token=case.began + each / 1000)
        objectives.end(case, "ok")
    found = counts(objectives)[TTFT.name]
    assert found["0.2"] == sum(each <= 200 for each in milliseconds)
    assert found["+Inf"] == len(milliseconds)
    assert sorted(found.values()) == list(found.values())


class Scrapes(RuleBasedStateMachine):
    """Requests that come, go on and end in any way, scraped after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.objectives = Counted(lambda: self.now)
        self.objectives.keep(ALL)
        self.objectives.know(REVISION)
        self.open: list[Case] = []
        self.before = counts(self.objectives)
        self.ended = 0

    @rule(seconds=st.sampled_from([0.01, 0.15, 0.25, 1.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(admitted=st.booleans())
    def arrive(self, admitted: bool) -> None:
        case = self.objectives.begin(REVISION)
        if admitted:
            case.marks = Marks(self.now)
        self.open.append(case)

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """The next thing that happens to an answer."""
        answers = [case for case in self.open if case.marks]
        if not answers:
            return
        marks = data.draw(st.sampled_from(answers)).marks
        assert marks is not None
        if marks.found is None:
            marks.found = self.now
        elif marks.first_token is None:
            marks.first_token = marks.awaited = self.now
        elif marks.finished is None and marks.awaited is not None:
            marks.longest_gap = max(marks.longest_gap, self.now - marks.awaited)
            marks.awaited = self.now
            if data.draw(st.booleans()):
                marks.finished, marks.awaited = self.now, None

    @rule(data=st.data(), outcome=st.sampled_from(["ok", "failed", "shed", "client_closed", "invalid", "rejected"]))
    def leave(self, data: st.DataObject, outcome: str) -> None:
        if self.open:
            self.objectives.end(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))), outcome)
            self.ended += 1

    @invariant()
    def no_counter_ever_falls(self) -> None:
        """A request that is late while it runs is late when it has ended."""
        now = counts(self.objectives)
        for objective, edges in self.before.items():
            assert all(now[objective][edge] >= value for edge, value in edges.items())
            assert now[objective]["+Inf"] <= self.ended + len(self.open)
        self.before = now


TestScrapes = Scrapes.TestCase


def test_a_request_that_runs_and_is_late_is_counted_before_it_ends_and_once() -> None:
    now = [0.0]
    objectives = Counted(lambda: now[0])
    objectives.keep([TTFT])
    case = objectives.begin(REVISION)
    now[0] = 0.19
    assert counts(objectives)[TTFT.name]["+Inf"] == 0
    now[0] = 0.21
    assert counts(objectives)[TTFT.name]["+Inf"] == 1
    objectives.end(case, "client_closed")
    objectives.end(case, "client_closed")
    assert counts(objectives)[TTFT.name]["+Inf"] == 1
    assert counts(objectives)[TTFT.name]["0.2"] == 0


def test_objectives_that_stay_keep_their_counts_and_new_ones_are_there_with_zero() -> None:
    objectives = Counted()
    objectives.keep([TTFT])
    objectives.end(objectives.begin(REVISION), "failed")
    other = Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=900)
    objectives.keep([other, TTFT])
    assert {name: edges["+Inf"] for name, edges in counts(objectives).items()} == {TTFT.name: 1, other.name: 0}
    objectives.keep([other])
    assert set(counts(objectives)) == {other.name}


def test_another_percent_is_the_same_counter() -> None:
    objectives = Counted()
    objectives.keep([TTFT])
    objectives.end(objectives.begin(REVISION), "failed")
    objectives.keep([TTFT.model_copy(update={"percent": 95.0})])
    assert counts(objectives)[TTFT.name]["+Inf"] == 1
    assert [each.percent for each in objectives.kept] == [95.0]


def test_what_was_found_in_time_stays_so_while_the_request_waits_for_something_else() -> None:
    now = [0.0]
    retrieval = Objective(metric=ObjectiveMetric.RETRIEVAL, threshold_milliseconds=200)
    objectives = Counted(lambda: now[0])
    objectives.keep([retrieval])
    case = objectives.begin(REVISION)
    case.marks = Marks(0.0, found=0.1)
    now[0] = 5.0
    assert counts(objectives)[retrieval.name]["+Inf"] == 0
