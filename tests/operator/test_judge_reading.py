"""Counters out of what servers really say, and out of what they never should."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from tailhold_api.slo import Objective, ObjectiveMetric
from tailhold_operator.judge.reading import read_objectives, reading
from tailhold_operator.judge.windows import Reading
from tailhold_server.objectives import EDGES, Counted
from tailhold_server.stages import Marks

METRICS = st.sampled_from([ObjectiveMetric.END_TO_END, ObjectiveMetric.TIME_TO_FIRST_TOKEN])
OBJECTIVES = st.tuples(METRICS, st.integers(1, 600_000)).map(
    lambda drawn: Objective(metric=drawn[0], threshold_milliseconds=drawn[1])
)


@given(OBJECTIVES, st.lists(st.floats(0, 3), max_size=30))
def test_what_a_server_counted_is_what_is_read(objective: Objective, times: list[float]) -> None:
    """Times are in shares of the threshold."""
    seconds = [each * objective.threshold_seconds for each in times]
    counted = Counted(lambda: 0.0)
    counted.keep([objective])
    counted.know("r")
    for each in seconds:
        case = counted.begin("r")
        case.marks = Marks(0.0, first_token=each, finished=each)
        counted.end(case, "ok")
    registry = CollectorRegistry()
    registry.register(counted)
    found = read_objectives(generate_latest(registry).decode())
    assert found is not None
    ((counter, buckets),) = found.items()
    assert counter == ("r", objective.name)
    read = reading(buckets, objective)
    assert read is not None
    assert read.total == len(seconds)
    assert read.bad == sum(each > objective.threshold_seconds for each in seconds)
    below = sorted((round(objective.threshold_seconds * share, 6) for share in EDGES if share < 1), reverse=True)
    assert read.slow == tuple(sum(each > edge for each in seconds) for edge in below)


@pytest.mark.parametrize(
    "text", ["<html>Log in</html>", 'tailhold_objective_seconds_bucket{objective="a",le="0.1"} many', "{", "x{le="]
)
def test_what_is_no_metrics_is_nothing_and_not_good(text: str) -> None:
    assert not read_objectives(text)


def test_an_empty_page_and_nan_are_missing_counters() -> None:
    assert read_objectives("") == {}
    nan = 'tailhold_objective_seconds_bucket{objective="a",le="+Inf"} NaN\n'
    assert read_objectives(nan) == {}


def test_a_threshold_that_is_no_edge_is_not_guessed() -> None:
    objective = Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=150)
    assert reading({0.1: 3, 0.2: 5, float("inf"): 6}, objective) is None
    assert reading({0.15: 3}, objective) is None
    assert reading({0.1: 3, 0.15: 5, float("inf"): 6}, objective, warm=False) == Reading(6, 1, (3,), warm=False)
