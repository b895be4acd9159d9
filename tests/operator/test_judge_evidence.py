"""Laws of the evidence: no bet pays on average when its hypothesis holds."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom

from tailhold_operator.judge.counts import Floats
from tailhold_operator.judge.evidence import Side, above, below, not_worse, worse

ALLOWED = st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3])
EFFECT = st.floats(1, 50)


def all_counts(total: int) -> Side:
    """Every number of bad requests that so many can have."""
    bad = np.arange(total + 1, dtype=np.float64)
    return Side(bad, np.full_like(bad, float(total)))


def paid(chances: Floats, evidence: Floats) -> float:
    """What a bet makes of 1 on average."""
    possible = chances > 0
    return float(np.exp(np.log(chances[possible]) + evidence[possible]).sum())


@given(ALLOWED, st.floats(0.001, 1), st.integers(1, 600))
def test_a_bet_on_more_does_not_pay_where_the_share_is_allowed(allowed: float, part: float, total: int) -> None:
    chances = binom.pmf(np.arange(total + 1), total, allowed * part)
    assert paid(chances, above(all_counts(total), allowed)) <= 1 + 1e-9


@given(ALLOWED, st.floats(0, 1), st.integers(1, 600))
def test_a_bet_on_fewer_does_not_pay_where_the_share_is_at_least_so_much(
    allowed: float, part: float, total: int
) -> None:
    share = allowed + part * (0.99 - allowed)
    chances = binom.pmf(np.arange(total + 1), total, share)
    assert paid(chances, below(all_counts(total), allowed)) <= 1 + 1e-9


@given(ALLOWED, st.floats(0, 1), st.floats(0, 1), st.integers(1, 50), st.integers(1, 50))
def test_bets_on_two_sides_do_not_pay_where_their_hypothesis_holds(
    allowed: float, low: float, apart: float, candidates: int, stables: int
) -> None:
    margin = allowed
    of_stable = max(1e-12, low * (1 - margin) * 0.99)
    chance = np.outer(
        binom.pmf(np.arange(candidates + 1), candidates, of_stable + margin + apart * (1 - of_stable - margin)),
        binom.pmf(np.arange(stables + 1), stables, of_stable),
    )
    bad, stable_bad = np.meshgrid(np.arange(candidates + 1.0), np.arange(stables + 1.0), indexing="ij")
    sides = Side(bad, np.full_like(bad, candidates)), Side(stable_bad, np.full_like(bad, stables))
    assert paid(chance, not_worse(*sides, allowed, margin)) <= 1 + 1e-9
    at_most = np.outer(
        binom.pmf(np.arange(candidates + 1), candidates, max(1e-12, apart * (of_stable + margin))),
        binom.pmf(np.arange(stables + 1), stables, of_stable),
    )
    assert paid(at_most, worse(*sides, allowed, margin)) <= 1 + 1e-9


@given(ALLOWED, EFFECT, st.integers(0, 500), st.integers(1, 5000), st.integers(0, 500), st.integers(1, 5000))
def test_requests_that_come_together_are_less_evidence(
    allowed: float, effect: float, bad: int, good: int, stable_bad: int, stable_good: int
) -> None:
    side = Side(np.array(float(bad)), np.array(float(bad + good)))
    beside = Side(np.array(float(stable_bad)), np.array(float(stable_bad + stable_good)))
    by = np.array(effect)
    assert below(side.divided(by), allowed) <= max(0, below(side, allowed)) + 1e-9
    assert above(side.divided(by), allowed) <= max(0, above(side, allowed)) + 1e-9
    sides = (side, beside), (side.divided(by), beside.divided(by))
    whole, divided = (not_worse(*each, allowed, allowed) for each in sides)
    assert divided <= max(0, whole) + 1e-9
    whole, divided = (worse(*each, allowed, allowed) for each in sides)
    assert divided <= max(0, whole) + 1e-9


@given(ALLOWED, st.integers(0, 50), st.integers(1, 5000), st.integers(0, 50), st.integers(1, 5000))
def test_one_more_bad_request_speaks_against_the_candidate(
    allowed: float, bad: int, good: int, stable_bad: int, stable_good: int
) -> None:
    side = Side(np.array(float(bad)), np.array(float(bad + good)))
    more = Side(side.bad + 1, side.total + 1)
    beside = Side(np.array(float(stable_bad)), np.array(float(stable_bad + stable_good)))
    assume(more.share > side.share)
    assert above(more, allowed) > above(side, allowed)
    assert below(more, allowed) < below(side, allowed)
    if np.isfinite(not_worse(more, beside, allowed, allowed)):
        assert not_worse(more, beside, allowed, allowed) < not_worse(side, beside, allowed, allowed)


def test_no_request_is_no_evidence() -> None:
    none = Side(np.array(0.0), np.array(0.0))
    assert abs(above(none, 0.01)) + abs(below(none, 0.01)) < 1e-12
    assert not_worse(none, none, 0.01, 0.01) <= 0
    assert worse(none, none, 0.01, 0.01) == -np.inf
