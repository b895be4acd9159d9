"""The load that a pod can carry, from its rates."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailhold_server.capacity import Capacity, Limits, Measure, Objective, Rates, Shape, capacity, engine_seconds

RATES = Rates(prefill=1000.0, stream=50.0, curve=((1, 50.0), (4, 160.0), (16, 400.0)))
SHAPE = Shape(prompt_tokens=600, fresh_tokens=500, answer_tokens=100)
LIMITS = Limits(running=16)

positive = st.floats(0.1, 1e4)
CURVES = st.lists(positive, min_size=1, max_size=6).map(
    lambda gains: tuple((2**at, sum(gains[: at + 1])) for at in range(len(gains)))
)
RATE = st.builds(Rates, prefill=positive, stream=positive, curve=CURVES)
SHAPES = st.builds(
    Shape,
    prompt_tokens=st.floats(100, 5000),
    fresh_tokens=st.floats(1, 100),
    answer_tokens=st.floats(1, 1000),
    lookup_seconds=st.floats(0, 0.01),
    spread=st.floats(0, 4),
)
LIMIT = st.builds(Limits, running=st.integers(1, 64), cache_tokens=st.none() | st.integers(1000, 100000))
OBJECTIVES = st.builds(
    Objective, measure=st.sampled_from(Measure), seconds=st.floats(0.01, 100), percent=st.floats(50, 99.9)
)


def test_without_an_objective_it_is_what_the_engine_gets_through() -> None:
    """500 tokens take 0.5 s, 100 at 400 a second 0.25 s: 1.33 requests a second."""
    found = capacity(RATES, SHAPE, LIMITS)
    assert found == Capacity(pytest.approx(1 / 0.75), "engine", "a request takes 0.750 s of the engine where 16 run")


@pytest.mark.parametrize(
    ("shape", "limits", "limited_by", "expected"),
    [
        (SHAPE, Limits(16, cache_tokens=700 * 4 + 10), "cache", 1 / (0.5 + 100 / 160)),
        (SHAPE, Limits(4), "engine", 1 / (0.5 + 100 / 160)),
        (SHAPE, Limits(64), "engine", 1 / 0.75),
        (Shape(600, 500, 100, lookup_seconds=2.0), LIMITS, "retrieval", 0.5),
        (Shape(600, 500, 100, lookup_seconds=0.1), LIMITS, "engine", 1 / 0.75),
    ],
)
def test_what_limits_it_is_named(shape: Shape, limits: Limits, limited_by: str, expected: float) -> None:
    found = capacity(RATES, shape, limits)
    assert found is not None
    assert found.limited_by == limited_by
    assert found.requests_per_second == pytest.approx(expected)


@pytest.mark.parametrize("rates", [Rates(None, 50.0), Rates(1000.0, None)])
def test_without_rates_nothing_is_claimed(rates: Rates) -> None:
    assert capacity(rates, SHAPE, LIMITS) is None


@given(RATE, SHAPES, LIMIT, OBJECTIVES)
def test_an_objective_never_raises_it(rates: Rates, shape: Shape, limits: Limits, objective: Objective) -> None:
    free, bound = capacity(rates, shape, limits), capacity(rates, shape, limits, objective)
    assert free is not None
    assert bound is not None
    assert 0 <= bound.requests_per_second <= free.requests_per_second


@given(RATE, SHAPES, LIMIT, OBJECTIVES, st.floats(1, 10), st.floats(0, 1))
def test_a_laxer_objective_never_lowers_it(
    rates: Rates, shape: Shape, limits: Limits, objective: Objective, slower: float, share: float
) -> None:
    lax = Objective(objective.measure, objective.seconds * slower, objective.percent * share)
    strict_found, lax_found = (capacity(rates, shape, limits, each) for each in (objective, lax))
    assert strict_found is not None
    assert lax_found is not None
    assert lax_found.requests_per_second >= strict_found.requests_per_second * (1 - 1e-6)


@given(RATE, SHAPES, LIMIT, st.none() | OBJECTIVES, st.floats(1, 10))
def test_a_machine_faster_by_a_factor_carries_at_least_as_much(
    rates: Rates, shape: Shape, limits: Limits, objective: Objective | None, factor: float
) -> None:
    faster = Rates(
        (rates.prefill or 0) * factor, (rates.stream or 0) * factor, tuple((n, r * factor) for n, r in rates.curve)
    )
    slow, fast = capacity(rates, shape, limits, objective), capacity(faster, shape, limits, objective)
    assert slow is not None
    assert fast is not None
    assert fast.requests_per_second >= slow.requests_per_second * (1 - 1e-6)


def test_prompts_of_exponential_length_wait_as_in_an_m_m_1_queue() -> None:
    """Textbook: the wait is longer than t in a share r exp(-(1 - r) t / s) of cases."""
    shape = Shape(500, 500, 1e-9, spread=1.0)
    found = capacity(RATES, shape, LIMITS, Objective(Measure.FIRST_TOKEN, 2.5, 90))
    assert found is not None
    busy = found.requests_per_second * 0.5
    assert busy * math.exp(-(1 - busy) * 2.0 / 0.5) == pytest.approx(0.1, rel=1e-3)


def test_an_engine_that_streams_do_not_slow_down_has_no_queue_until_it_is_full() -> None:
    """With a curve in proportion to the streams it is M/M/16: far from full, an answer takes what it takes alone."""
    rates = Rates(1e9, 50.0, ((1, 50.0), (16, 800.0)))
    shape = Shape(1, 1, 100)
    almost = capacity(rates, shape, LIMITS, Objective(Measure.WHOLE_ANSWER, 2.05, 90))
    assert almost is not None
    assert almost.limited_by == "objective"
    assert 0.3 < almost.requests_per_second / 8 < 0.95


def test_an_objective_that_one_request_alone_does_not_keep_leaves_nothing_and_says_so() -> None:
    found = capacity(RATES, SHAPE, LIMITS, Objective(Measure.FIRST_TOKEN, 0.4, 95))
    assert found is not None
    assert (found.requests_per_second, found.limited_by) == (0, "objective")
    assert "not even one request alone" in found.why


@given(RATE, st.floats(0.1, 100), st.floats(0.1, 100))
def test_more_streams_never_gain_less_where_the_measured_curve_rises(rates: Rates, one: float, other: float) -> None:
    low, high = sorted((rates.decode(min(one, other)) or 0, rates.decode(max(one, other)) or 0))
    assert rates.decode(min(one, other)) == pytest.approx(low)
    assert rates.decode(max(one, other)) == pytest.approx(high)


@given(RATE, SHAPES)
def test_a_request_keeps_the_engine_busy_at_least_for_its_prompt(rates: Rates, shape: Shape) -> None:
    seconds = engine_seconds(rates, shape, 1)
    assume(seconds is not None)
    assert seconds is not None
    assert seconds >= shape.fresh_tokens / (rates.prefill or 1)
