"""Conditions as the API conventions want them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.status import Condition
from tailhold_operator.conditions import set_conditions, stamp
from tailhold_operator.findings import FINE, Finding, stuck, waiting

NOW = datetime(2026, 1, 1, 0, 0, 0, 999999, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
BASE = (
    ConditionType.ACCEPTED,
    ConditionType.AVAILABLE,
    ConditionType.INDEX_LOADED,
    ConditionType.MODEL_LOADED,
    ConditionType.ROLLED_OUT,
)
FINDINGS = st.sampled_from(
    [FINE, waiting(Reason.LOADING_MODEL, "x"), stuck(Reason.MODEL_NOT_FOUND, "y"), waiting(Reason.DRAINING)]
)
WHOLE = st.fixed_dictionaries(dict.fromkeys(BASE, FINDINGS))


def by_type(conditions: tuple[Condition, ...]) -> dict[str, Condition]:
    return {each.type: each for each in conditions}


@given(WHOLE, WHOLE)
def test_the_time_moves_with_the_status_and_only_then(
    before: dict[ConditionType, Finding], after: dict[ConditionType, Finding]
) -> None:
    """C15."""
    first = set_conditions((), before, 1, NOW)
    second = by_type(set_conditions(first, after, 2, LATER))
    for each in first:
        if each.type in second:
            same = second[each.type].status == each.status
            assert (second[each.type].last_transition_time == each.last_transition_time) == same


@given(WHOLE)
def test_saying_the_same_again_changes_nothing(findings: dict[ConditionType, Finding]) -> None:
    first = set_conditions((), findings, 1, NOW)
    assert set_conditions(first, findings, 1, LATER) == first


@given(WHOLE)
def test_ready_sums_up(findings: dict[ConditionType, Finding]) -> None:
    found = by_type(set_conditions((), findings, 1, NOW))
    ready = all(each.holds for each in findings.values())
    assert (found["Ready"].status == "True") == ready
    assert ("Stalled" in found) == any(each.stalled for each in findings.values())
    assert ("Reconciling" in found) == (not ready and "Stalled" not in found)


@given(WHOLE, st.integers(1, 99))
def test_each_condition_says_which_spec_it_speaks_of(findings: dict[ConditionType, Finding], generation: int) -> None:
    assert {each.observed_generation for each in set_conditions((), findings, generation, NOW)} == {generation}


def test_times_are_whole_seconds_in_utc() -> None:
    assert stamp(NOW) == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_never_grows_beyond_what_is_stored(holds: bool) -> None:
    findings = dict.fromkeys(BASE, Finding(holds, Reason.NOT_READY, "x" * 100_000))
    assert all(len(each.message) <= 32768 for each in set_conditions((), findings, 1, NOW))
