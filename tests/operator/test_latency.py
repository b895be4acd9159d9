"""A percentile out of counters that only grow."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.latency import added, grown, quantile_milliseconds, read_buckets

TEXT = """# HELP tailhold_request_duration_seconds x
# TYPE tailhold_request_duration_seconds histogram
tailhold_request_duration_seconds_bucket{le="0.1",route="a"} 5.0
tailhold_request_duration_seconds_bucket{le="0.1",route="b"} 1.0
tailhold_request_duration_seconds_bucket{le="+Inf",route="a"} 6.0
tailhold_request_duration_seconds_bucket{le="+Inf",route="b"} 2.0
tailhold_request_duration_seconds_count{route="a"} 6.0
tailhold_other_bucket{le="0.1"} 50.0
"""


def test_buckets_are_added_over_labels() -> None:
    assert read_buckets(TEXT) == {0.1: 6.0, math.inf: 8.0}


def test_nonsense_is_nothing() -> None:
    assert read_buckets("<html>not found") == {}


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        pytest.param({}, None, id="no pods"),
        pytest.param({0.1: 0, math.inf: 0}, None, id="no requests"),
        pytest.param({0.1: 100, math.inf: 100}, 99, id="within one bucket"),
        pytest.param({0.1: 50, 1.0: 100, math.inf: 100}, 982, id="between two"),
        pytest.param({0.1: 50, math.inf: 100}, 100, id="beyond the last bound nothing is claimed"),
    ],
)
def test_the_percentile(buckets: dict[float, float], expected: int | None) -> None:
    assert quantile_milliseconds(buckets, 0.99) == expected


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200))
def test_it_lies_in_the_bucket_of_the_true_one(milliseconds: list[int]) -> None:
    bounds = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, math.inf]
    buckets = {bound: float(sum(each / 1000 <= bound for each in milliseconds)) for bound in bounds}
    true = sorted(milliseconds)[math.ceil(0.99 * len(milliseconds)) - 1] / 1000
    upper = next(bound for bound in bounds if true <= bound)
    found = quantile_milliseconds(buckets, 0.99)
    assert found is not None
    assert found / 1000 <= upper + 0.001


def test_a_restarted_pod_begins_at_zero() -> None:
    assert grown({0.1: 5}, {0.1: 7}) == {0.1: 2}
    assert grown({0.1: 5}, {0.1: 3}) == {0.1: 3}


def test_pods_are_added_over_common_bounds() -> None:
    assert added([{0.1: 1, 1: 2}, {0.1: 3, 1: 4}, {}]) == {0.1: 4, 1: 6}
    assert added([]) == {}
