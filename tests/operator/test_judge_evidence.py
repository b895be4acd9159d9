"""Laws of the evidence: no bet pays on average when its hypothesis holds."""

from math import exp, inf

from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom

from tailhold_operator.judge.counts import Side
from tailhold_operator.judge.evidence import above, below, not_worse, worse

ALLOWED = st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3])
EFFECT = st.floats(1, 50)
COUNTS = st.tuples(st.integers(0, 500), st.integers(1, 5000)).map(lambda each: Side(each[0], sum(each)))


def chances(total: int, share: float) -> list[tuple[Side, float]]:
    """Every number of bad requests that so many can have, and how probable its logarithm is."""
    share = min(max(share, 1e-12), 1 - 1e-12)
    return [(Side(bad, total), float(binom.logpmf(bad, total, share))) for bad in range(total + 1)]


@given(ALLOWED, st.floats(0.001, 1), st.integers(1, 300))
def test_a_bet_on_more_does_not_pay_where_the_share_is_allowed(allowed: float, part: float, total: int) -> None:
    paid = sum(exp(chance + above(side, allowed)) for side, chance in chances(total, allowed * part))
    assert paid <= 1 + 1e-9


@given(ALLOWED, st.floats(0, 1), st.integers(1, 300))
def test_a_bet_on_fewer_does_not_pay_where_the_share_is_at_least_so_much(
    allowed: float, part: float, total: int
) -> None:
    share = allowed + part * (0.99 - allowed)
    assert sum(exp(chance + below(side, allowed)) for side, chance in chances(total, share)) <= 1 + 1e-9


@given(ALLOWED, st.floats(0, 1), st.floats(0, 1), st.integers(1, 15), st.integers(1, 15))
def test_bets_on_two_sides_do_not_pay_where_their_hypothesis_holds(
    allowed: float, low: float, apart: float, candidates: int, stables: int
) -> None:
    of_stable = low * (1 - allowed) * 0.99
    at_least = of_stable + allowed + apart * (1 - of_stable - allowed)
    at_most = apart * (of_stable + allowed)
    for bet, share in ((not_worse, at_least), (worse, at_most)):
        paid = sum(
            exp(chance + other + bet(candidate, stable, allowed, allowed))
            for candidate, chance in chances(candidates, share)
            for stable, other in chances(stables, of_stable)
        )
        assert paid <= 1 + 1e-9


@given(ALLOWED, EFFECT, COUNTS, COUNTS)
def test_requests_that_come_together_are_less_evidence(
    allowed: float, effect: float, candidate: Side, stable: Side
) -> None:
    fewer = candidate.divided(effect), stable.divided(effect)
    for bet in (above, below):
        assert bet(fewer[0], allowed) <= max(0, bet(candidate, allowed)) + 1e-9
    for compare in (not_worse, worse):
        assert compare(*fewer, allowed, allowed) <= max(0, compare(candidate, stable, allowed, allowed)) + 1e-9


@given(ALLOWED, COUNTS, COUNTS)
def test_one_more_bad_request_speaks_against_the_candidate(allowed: float, candidate: Side, stable: Side) -> None:
    more = Side(candidate.bad + 1, candidate.total + 1)
    assume(more.share > candidate.share)
    assert above(more, allowed) > above(candidate, allowed)
    assert below(more, allowed) < below(candidate, allowed)
    after = not_worse(more, stable, allowed, allowed)
    # One that is better comes to be like the other first, and a bet that is lost may be lost by a
    # little less; no bet is on shares near 1.
    if after > 0 and candidate.share >= stable.share and stable.share <= 0.5:
        assert after < not_worse(candidate, stable, allowed, allowed)


def test_no_request_is_no_evidence() -> None:
    none = Side(0, 0)
    assert abs(above(none, 0.01)) + abs(below(none, 0.01)) < 1e-12
    assert not_worse(none, none, 0.01, 0.01) <= 0
    assert worse(none, none, 0.01, 0.01) == -inf
