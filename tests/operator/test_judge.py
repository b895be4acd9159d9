"""What a verdict says, for counts of every kind."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.judge.clustering import clustering, design_effect
from tailhold_operator.judge.comparison import LEAST_REQUESTS, TRUTH, Absolute, Limit, Outcome, Relative
from tailhold_operator.judge.counts import Counts, Window, counted
from tailhold_operator.judge.prospects import prospect, seconds_left
from tailhold_operator.judge.verdict import Answer, Sample, Why, judge, shared_level

LIMIT = Limit(allowed=0.01, margin=0.01)


def spread(total: int, bad: int, cells: int | None = None) -> Counts:
    """Bad requests one by one, at places that chance draws."""
    rng = np.random.default_rng(7)
    number = cells or max(8, total // 25)
    flags = np.zeros(total)
    flags[rng.choice(total, bad, replace=False)] = 1
    pieces = np.array_split(flags, number)
    return Counts(np.array([float(len(each)) for each in pieces]), np.array([each.sum() for each in pieces]))


def together(total: int, bad: int, cells: int = 100) -> Counts:
    """All bad requests in one cell."""
    places = np.zeros(cells)
    places[cells // 2] = bad
    return Counts(np.full(cells, total / cells), places)


VERDICTS: Sequence[tuple[str, Counts, Counts | None, Answer, Why]] = [
    ("alike and good", spread(4000, 8), spread(4000, 8), Answer.PASS, Why.NOT_WORSE),
    ("alone and good", spread(4000, 8), None, Answer.PASS, Why.NOT_WORSE),
    ("three times what is allowed", spread(1000, 30), spread(4000, 8), Answer.FAIL, Why.BEYOND_OBJECTIVE),
    ("three times what is allowed, alone", spread(1000, 30), None, Answer.FAIL, Why.BEYOND_OBJECTIVE),
    ("all of them bad", spread(200, 200), spread(4000, 8), Answer.FAIL, Why.BEYOND_OBJECTIVE),
    ("both sides bad", spread(1000, 60), spread(4000, 200), Answer.UNDECIDED, Why.BOTH_BEYOND),
    ("both bad, the candidate much more", spread(4000, 600), spread(4000, 120), Answer.FAIL, Why.BEYOND_OBJECTIVE),
    ("better than a bad stable side", spread(9000, 40), spread(9000, 900), Answer.PASS, Why.NOT_WORSE),
    ("one long wait", together(1000, 30), spread(4000, 8), Answer.UNDECIDED, Why.INSUFFICIENT_SAMPLES),
    ("few requests", spread(150, 0, 15), spread(4000, 8), Answer.UNDECIDED, Why.INSUFFICIENT_SAMPLES),
    ("few requests, all bad", spread(150, 150, 15), spread(4000, 8), Answer.UNDECIDED, Why.INSUFFICIENT_SAMPLES),
    ("a candidate that nobody asks", spread(0, 0), spread(4000, 8), Answer.UNDECIDED, Why.NO_TRAFFIC),
    ("a stable side that nobody asks", spread(4000, 8), spread(0, 0), Answer.UNDECIDED, Why.INSUFFICIENT_SAMPLES),
    ("no cell yet", counted([]), counted([]), Answer.UNDECIDED, Why.NO_TRAFFIC),
]


@pytest.mark.parametrize(
    ("candidate", "stable", "answer", "why"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_a_verdict(candidate: Counts, stable: Counts | None, answer: Answer, why: Why) -> None:
    said = judge({"ttft": Sample(candidate, stable, LIMIT)}, least_requests=300)
    assert (said.answer, said.why) == (answer, why)


def test_counters_that_cannot_be_read_are_blind_and_nothing_else() -> None:
    said = judge(None, least_requests=0)
    assert (said.answer, said.why, said.findings) == (Answer.BLIND, Why.METRICS_UNAVAILABLE, {})


def test_no_objective_is_no_pass() -> None:
    assert judge({}, least_requests=0).answer is Answer.UNDECIDED


def test_one_objective_fails_all_and_all_have_to_pass() -> None:
    good, bad, open_ = (
        Sample(each, spread(4000, 8), LIMIT) for each in (spread(4000, 8), spread(1000, 30), spread(200, 0))
    )
    assert judge({"a": good, "b": bad}, 0).answer is Answer.FAIL
    assert judge({"a": good, "b": open_}, 0).answer is Answer.UNDECIDED
    assert judge({"a": good, "b": good}, 0).answer is Answer.PASS
    assert judge({"a": open_, "b": bad}, 0).objective == "b"


def test_what_would_pass_waits_for_the_requests_that_a_step_asks_for() -> None:
    sample = Sample(spread(4000, 8), spread(4000, 8), LIMIT, rate=10)
    said = judge({"ttft": sample}, least_requests=5000)
    assert (said.answer, said.why) == (Answer.UNDECIDED, Why.INSUFFICIENT_SAMPLES)
    assert said.findings["ttft"].seconds_left == 100


def test_the_truth_table_is_whole_and_never_goes_on_without_evidence() -> None:
    assert set(TRUTH) == set(product(Absolute, Relative, (False, True)))
    for (absolute, relative, _), outcome in TRUTH.items():
        assert (outcome is Outcome.PASS) == (absolute is Absolute.NOT_BEYOND and relative is Relative.NOT_WORSE)
        assert outcome is Outcome.FAIL or relative is not Relative.WORSE


@given(st.integers(0, LEAST_REQUESTS - 1), st.data())
def test_too_few_requests_neither_pass_nor_fail(total: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, total))
    candidate = counted([Window(1, int(number < bad)) for number in range(total)])
    for stable in (None, spread(4000, 8)):
        assert judge({"ttft": Sample(candidate, stable, LIMIT)}, 0).answer is Answer.UNDECIDED


class TestClustering:
    """How many requests count as one."""

    @given(st.integers(2, 40), st.integers(0, 2**32 - 1))
    def test_bad_requests_that_come_k_at_a_time_count_k_times_less(self, k: int, seed: int) -> None:
        single = np.random.default_rng(seed).binomial(25, 0.02, 400).astype(np.float64)
        total = np.full(400, 25.0 * k)
        ratio = float(design_effect(single * k, total) / design_effect(single, total))
        assert 0.7 * k <= ratio <= 6 * k

    def test_independent_requests_are_not_made_to_look_like_clusters(self) -> None:
        bad = np.random.default_rng(3).binomial(25, 0.03, (2000, 28)).astype(np.float64)
        effects = design_effect(bad, np.full_like(bad, 25.0))
        assert np.quantile(effects, 0.5) == 1
        assert effects.mean() < 1.25

    def test_a_wait_that_is_longer_than_a_cell_is_seen_in_longer_blocks(self) -> None:
        bad = np.zeros(256)
        bad[64:80] = 4
        total = np.full(256, 25.0)
        assert design_effect(bad, total) > 3 * design_effect(np.roll(np.tile([4.0, *[0] * 15], 16), 5), total)

    def test_what_is_slow_below_the_threshold_tells_before_any_is_bad(self) -> None:
        slow = np.zeros(64)
        slow[10:14] = slow[40:44] = 20
        counts = Counts(np.full(64, 25.0), np.zeros(64), (slow,))
        assert clustering(Counts(counts.total, counts.bad)) == 1
        assert clustering(counts) > 20

    @given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=50))
    def test_windows_are_joined_and_none_is_lost_but_the_last(self, pairs: list[tuple[int, int]]) -> None:
        windows = [Window(max(pair), min(pair), (max(pair),)) for pair in pairs]
        counts = counted(windows)
        assert (counts.total >= 10).all()
        left = sum(window.total for window in windows) - counts.all_total
        assert 0 <= left < 10 or not windows
        assert np.array_equal(counts.slow[0] if counts.slow else counts.total, counts.total)


class TestProspects:
    """What a verdict will take."""

    @pytest.mark.parametrize("stable", [None, spread(9000, 18)])
    def test_a_candidate_that_goes_on_as_it_did_passes_with_what_was_said(self, stable: Counts | None) -> None:
        seen = spread(1000, 3)
        said = prospect(seen, stable, LIMIT)
        assert said.needed is not None
        assert 300 < said.needed < 4000
        more = prospect(Counts(seen.total * 2, seen.bad * 2), stable, LIMIT)
        assert more.share == pytest.approx(said.share, rel=0.3)

    def test_clusters_take_so_many_times_more(self) -> None:
        single, five = prospect(spread(1000, 5), None, LIMIT), prospect(together(1000, 5), None, LIMIT)
        assert single.needed is not None
        assert five.needed is not None
        assert five.needed / single.needed == pytest.approx(five.clustering / single.clustering, rel=0.05)

    def test_a_share_beyond_the_margin_never_passes(self) -> None:
        assert prospect(spread(1000, 60), None, LIMIT).needed is None

    def test_time_follows_from_the_rate(self) -> None:
        assert seconds_left(1000, 400, 10) == 60
        assert seconds_left(1000, 1400, 10) == 0
        assert seconds_left(1000, 400, 0) == seconds_left(None, 400, 10) == np.inf


def test_the_error_level_is_divided_among_objectives_and_steps() -> None:
    assert shared_level(0.05, objectives=2, steps=5) == pytest.approx(0.005)
    assert shared_level(0.05, objectives=0, steps=0) == pytest.approx(0.05)
