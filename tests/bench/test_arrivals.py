"""When requests are due."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailhold_bench.load.arrivals import Bursts, Piece, Spacing, arrivals, bursts, ramp, steady, steps
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.words import shape

rates = st.floats(0.1, 200)
seeds = st.integers(0, 2**32)
pieces = st.lists(st.builds(Piece, st.floats(0.5, 20), st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=5)


@given(pieces, st.sampled_from(Spacing), seeds)
def test_times_ascend_within_the_shape_and_follow_from_the_seed(
    shape: list[Piece], spacing: Spacing, seed: int
) -> None:
    times = list(arrivals(shape, spacing, seed))
    assert all(earlier <= later for earlier, later in pairwise(times))
    assert all(0 <= at <= sum(piece.seconds for piece in shape) + 1e-6 for at in times)
    assert times == list(arrivals(shape, spacing, seed))


@given(pieces)
def test_even_arrivals_are_as_many_as_expected_up_to_any_piece(shape: list[Piece]) -> None:
    times = list(arrivals(shape, Spacing.CONSTANT, 0))
    end, expected = 0.0, 0.0
    for piece in shape:
        end += piece.seconds
        expected += piece.requests
        assert abs(sum(at < end for at in times) - expected) <= 1 + 1e-6


@settings(max_examples=30)
@given(st.floats(100, 1000), seeds)
def test_the_count_of_poisson_arrivals_is_near_its_mean_and_other_seeds_draw_others(expected: float, seed: int) -> None:
    times = list(arrivals(steady(expected / 10, 10), Spacing.POISSON, seed))
    assert abs(len(times) - expected) < 6 * math.sqrt(expected)
    assert times != list(arrivals(steady(expected / 10, 10), Spacing.POISSON, seed + 1))


def test_poisson_gaps_vary_as_much_as_their_mean() -> None:
    """A load that is more even than clients are would hide the queue."""
    times = list(arrivals(steady(100, 200), Spacing.POISSON, 5))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation / mean == pytest.approx(1, abs=0.03)


def test_a_ramp_has_half_of_its_requests_after_more_than_half_of_the_time() -> None:
    times = list(arrivals(ramp(0.001, 100, 10), Spacing.CONSTANT, 0))
    assert len(times) == pytest.approx(500, abs=2)
    assert times[len(times) // 2] == pytest.approx(10 / math.sqrt(2), abs=0.05)


def test_steps_have_their_rates() -> None:
    times = list(arrivals(steps([10, 40], 20), Spacing.CONSTANT, 0))
    assert sum(at < 10 for at in times) == 100
    assert sum(at >= 10 for at in times) == 400


def test_bursts_have_the_mean_rate_in_the_long_run_and_a_long_tail() -> None:
    drawn = bursts(10, 400_000, Bursts(), seed=3)
    assert sum(piece.requests for piece in drawn) / 400_000 == pytest.approx(10, rel=0.05)
    quiet = Bursts().quiet_rate(10)
    assert {round(piece.first / quiet) for piece in drawn} == {1, 5}
    lengths = sorted(piece.seconds for piece in drawn if piece.first > quiet)
    assert sum(lengths) / len(lengths) == pytest.approx(2, rel=0.1)
    assert lengths[-1] > 20 * lengths[len(lengths) // 2]


@given(rates, st.floats(1, 100), seeds)
def test_bursts_last_as_long_as_was_asked(rate: float, seconds: float, seed: int) -> None:
    assert sum(piece.seconds for piece in bursts(rate, seconds, Bursts(), seed)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wave", "--shape 'wave': allowed are steady, ramp"),
        ("ramp", "to is missing"),
        ("ramp:to=fast", "'fast' is no number above 0"),
        ("ramp:too=5", "no 'too'"),
        ("steps:10,,20", "'' is no number"),
        ("bursts:tail=1", "tail must be above 1"),
        ("steady:5", "allowed are steady"),
    ],
)
def test_a_wrong_shape_names_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(LoadError, match="--shape") as caught:
        shape(text, 10, 60, 1)
    assert said in str(caught.value)
