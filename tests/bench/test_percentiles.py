"""Percentiles, intervals and objectives."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailhold_bench.load.check import Bounds, check
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.objectives import Objective, Verdict, judge, parse_objective
from tailhold_bench.load.percentiles import (
    Latency,
    curve,
    interval,
    latencies,
    mean_in_flight,
    peak_in_flight,
    percentile,
    ratio,
    share_within,
    time_in_system,
)
from tailhold_bench.load.samples import Outcome, Sample

some = st.lists(st.floats(0, 1e3), min_size=1, max_size=300)
percents = st.floats(0.1, 100)


def answered(number: int, seconds: float, due: float = 0.0) -> Sample:
    sample = Sample(number, due, 16, begun=due, first_byte=due + seconds, outcome=Outcome.OK)
    sample.token(due + seconds)
    sample.ended = due + seconds
    return sample


def failed(number: int, outcome: Outcome = Outcome.TIMEOUT) -> Sample:
    return Sample(number, 0.0, 16, begun=0.0, first_token=0.001, ended=0.002, outcome=outcome)


@given(some, percents)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(np.array(values), percent)
    assert found in values
    needed = len(values) * percent / 100
    assert sum(value <= found for value in values) >= needed - 1e-6
    assert sum(value < found for value in values) < needed


@given(some, st.floats(0, 1e4), percents)
def test_a_slower_request_never_lowers_a_percentile(values: list[float], more: float, percent: float) -> None:
    slower = [*values[:-1], values[-1] + more]
    assert percentile(np.array(slower), percent) >= percentile(np.array(values), percent)


@given(some, st.sampled_from([o for o in Outcome if o is not Outcome.OK]), percents)
def test_a_request_without_an_answer_is_slower_than_any(values: list[float], outcome: Outcome, percent: float) -> None:
    """However fast it failed."""
    good = [answered(number, value) for number, value in enumerate(values)]
    bad = [*good, failed(len(good), outcome)]
    assert percentile(latencies(bad, Latency.E2E), percent) >= percentile(latencies(good, Latency.E2E), percent)
    assert percentile(latencies(bad, Latency.TTFT), 100) == math.inf


@given(some)
def test_the_curve_ascends_to_the_greatest_value(values: list[float]) -> None:
    points = curve(np.array(values))
    assert points == sorted(points)
    assert points[-1] == (100.0, max(values))


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_interval_holds_the_true_percentile_mostly(seed: int) -> None:
    """Of exponential values the p95 is known; 95 % of intervals hold it, and nearly all do when widened by a fifth."""
    values = np.random.default_rng(seed).exponential(1.0, 2000)
    around = interval(values, 95)
    assert around.low <= percentile(values, 95) <= around.high
    assert around.low * 0.83 < -math.log(0.05) < around.high * 1.2


def test_an_interval_is_wider_where_neighbours_are_alike() -> None:
    """As in a queue: fifty in a row say as much as one."""
    values = np.random.default_rng(1).exponential(1.0, 100)
    alike, mixed = np.repeat(values, 50), np.tile(values, 50)
    wide, narrow = interval(alike, 90), interval(mixed, 90)
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert share_within(alike, 1.0)[1].low < share_within(mixed, 1.0)[1].low


def test_a_ratio_says_which_run_was_slower_only_when_it_shows() -> None:
    random = np.random.default_rng(2)
    one, alike, slow = (random.exponential(scale, 3000) for scale in (1.0, 1.0, 1.5))
    found, around = ratio(slow, one, 95)
    assert found == pytest.approx(1.5, rel=0.1)
    assert around.low > 1
    assert ratio(alike, one, 95)[1].low < 1 < ratio(alike, one, 95)[1].high


def test_in_flight_is_counted_from_the_samples() -> None:
    samples = [answered(0, 2.0, due=0.0), answered(1, 2.0, due=1.0), answered(2, 1.0, due=3.0)]
    assert peak_in_flight(samples) == 2
    assert mean_in_flight(samples) == pytest.approx(5 / 4)


def test_little_s_law_on_the_article_s_load() -> None:
    """3,500 in flight at 1,200 a second are no 89 ms."""
    assert time_in_system(3500, 1200) == pytest.approx(2.92, abs=0.005)


@pytest.mark.parametrize(
    ("text", "objective"),
    [
        ("ttft=100ms@95", Objective(Latency.TTFT, 0.1, 95)),
        ("e2e=2s@99.9", Objective(Latency.E2E, 2.0, 99.9)),
        (" gap=50ms@50 ", Objective(Latency.GAP, 0.05, 50)),
    ],
)
def test_objectives_are_read_and_written_alike(text: str, objective: Objective) -> None:
    assert parse_objective(text) == objective
    assert str(objective) == text.strip()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("p99<100ms", "METRIC=TIME@PERCENT"),
        ("ttft=100@95", "a time above 0 with its unit"),
        ("ttft=100ms@100", "between 0 and 100"),
        ("speed=1s@95", "METRIC is one of ttft, e2e, ttfb, gap, tpot"),
        ("ttft=0s@95", "above 0"),
        ("", "METRIC=TIME@PERCENT"),
    ],
)
def test_a_wrong_objective_names_the_allowed_form(text: str, said: str) -> None:
    with pytest.raises(LoadError, match=r"^--objective ") as caught:
        parse_objective(text)
    assert said in str(caught.value)


def test_an_objective_counts_every_request() -> None:
    samples = [answered(number, 0.05) for number in range(96)] + [failed(96 + number) for number in range(4)]
    passed = judge(parse_objective("ttft=100ms@95"), samples)
    assert (passed.verdict, passed.good, passed.total) == (Verdict.PASS, 96, 100)
    assert "96.00 % of requests (96 of 100) were within 100ms, wanted 95 %" in str(passed)
    assert "another run may say otherwise" in str(passed)
    assert judge(parse_objective("ttft=100ms@97"), samples).verdict is Verdict.FAIL


def test_many_more_good_ones_show_it() -> None:
    samples = [answered(number, 0.05) for number in range(1000)]
    assert judge(parse_objective("ttft=100ms@95"), samples).is_shown


@pytest.mark.parametrize("count", [0, 1, 99])
def test_a_p99_of_fewer_than_a_hundred_is_never_a_pass(count: int) -> None:
    """What the article's last table claims of P99 has only a P95 behind it."""
    judged = judge(parse_objective("e2e=400ms@99"), [answered(number, 0.382) for number in range(count)])
    assert judged.verdict is Verdict.UNDECIDED
    assert "at least 100 requests are needed" in str(judged)


def test_the_generator_is_judged_by_its_lag_and_its_cpu() -> None:
    assert check(0.0009, 0.02, [0.5], Bounds()).is_valid
    slow = check(0.0011, 0.02, [0.5], Bounds())
    assert "generator was too slow: results invalid (1.10 ms late at p99, allowed 1.00 ms)" in slow.text
    assert check(0.0011, 0.2, [0.5], Bounds()).is_valid, "a hundredth of the median"
    assert not check(0.0011, 0.2, [0.5], Bounds(lag_seconds=0.001)).is_valid
    assert "71% of a core" in check(0.0001, 0.2, [0.1, 0.71], Bounds()).text
    assert "nothing was sent" in check(math.nan, math.nan, [], Bounds()).text
