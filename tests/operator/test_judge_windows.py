"""Counters of pods that start again, come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.judge.counts import Counts, Window, counted
from tailhold_operator.judge.windows import Reading, window

REQUESTS = st.lists(st.booleans(), max_size=30)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), REQUESTS, min_size=1), min_size=2, max_size=12))
def test_what_pods_counted_is_what_all_windows_have_together(looks: list[dict[str, list[bool]]]) -> None:
    """Pods serve at any of the looks, and what they do then is lost only where no look was before or after it."""
    counted = {uid: Reading(0, 0) for uid in "abc"}
    before: dict[str, Reading] = dict(counted)
    summed = Window(0, 0)
    for look in looks:
        for uid, requests in look.items():
            old = counted[uid]
            counted[uid] = Reading(old.total + len(requests), old.bad + sum(requests))
        found = window(before, counted)
        assert found is not None
        summed = Window(summed.total + found.total, summed.bad + found.bad)
        before = dict(counted)
    assert summed.total == sum(reading.total for reading in counted.values())
    assert summed.bad == sum(reading.bad for reading in counted.values())


def test_a_pod_that_started_again_counts_from_this_look_on() -> None:
    assert window({"a": Reading(900, 9)}, {"a": Reading(40, 4)}) is None
    assert window({"a": Reading(900, 9), "b": Reading(10, 0)}, {"a": Reading(40, 4), "b": Reading(30, 1)}) == Window(
        20, 1
    )


def test_a_new_pod_and_one_that_was_cold_count_from_this_look_on() -> None:
    assert window({}, {"a": Reading(40, 40)}) is None
    assert window({"a": Reading(40, 40, warm=False)}, {"a": Reading(90, 60)}) is None
    assert window({"a": Reading(90, 60)}, {"a": Reading(190, 61)}) == Window(100, 1)


def test_a_pod_that_has_gone_takes_only_its_last_requests_with_it() -> None:
    assert window({"a": Reading(10, 0), "b": Reading(10, 0)}, {"b": Reading(15, 1)}) == Window(5, 1)


def test_no_request_between_two_looks_is_a_window_and_no_pod_is_none() -> None:
    assert window({"a": Reading(10, 1)}, {"a": Reading(10, 1)}) == Window(0, 0)
    assert window({"a": Reading(10, 1)}, {}) is None


def test_pods_that_count_beyond_other_thresholds_are_added_up_without_these() -> None:
    assert window({"a": Reading(10, 1, (3,))}, {"a": Reading(20, 2, (5, 6))}) is None
    before = {"a": Reading(10, 1, (3,)), "b": Reading(10, 1, (3, 4))}
    assert window(before, {"a": Reading(20, 2, (5,)), "b": Reading(30, 1, (3, 9))}) == Window(30, 1)


@pytest.mark.parametrize("wrong", [1e300, 1e9])
def test_more_requests_than_there_can_be_are_none(wrong: float) -> None:
    assert window({"a": Reading(10, 1)}, {"a": Reading(wrong, 1)}) is None


def test_windows_of_servers_of_two_kinds_are_counted_together() -> None:
    assert counted([Window(20, 1, (4,)), Window(20, 2, (4, 5))]) == Counts((20, 20), (1, 2), ())
