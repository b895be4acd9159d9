"""What a verdict says, for counts of every kind."""

from collections.abc import Sequence
from itertools import product
from math import inf

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
    """Bad requests one by one, as far from each other as they can be."""
    places = {number * total // bad for number in range(bad)}
    size = max(1, total // (cells or max(8, total // 25)))
    pieces = [range(start, min(start + size, total)) for start in range(0, total, size)]
    return Counts(
        [float(len(each)) for each in pieces], [float(sum(place in places for place in each)) for each in pieces]
    )


def together(total: int, bad: int, cells: int = 100) -> Counts:
    """All bad requests in one cell."""
    return Counts([total / cells] * cells, [float(bad) if cell == cells // 2 else 0.0 for cell in range(cells)])


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
        single = [float(each) for each in np.random.default_rng(seed).binomial(25, 0.02, 400)]
        total = [25.0 * k] * 400
        ratio = design_effect([each * k for each in single], total) / design_effect(single, total)
        assert 0.7 * k <= ratio <= 6 * k

    def test_independent_requests_are_not_made_to_look_like_clusters(self) -> None:
        runs = np.random.default_rng(3).binomial(25, 0.03, (500, 28)).astype(float).tolist()
        effects = sorted(design_effect(run, [25.0] * 28) for run in runs)
        assert effects[450] == 1
        assert sum(effects) / 500 < 1.25

    def test_a_wait_that_is_longer_than_a_cell_is_seen_in_longer_blocks(self) -> None:
        total = [25.0] * 256
        long = [4.0 if 64 <= cell < 80 else 0.0 for cell in range(256)]
        short = [4.0 if cell % 16 == 5 else 0.0 for cell in range(256)]
        assert design_effect(long, total) > 3 * design_effect(short, total)

    def test_what_is_slow_below_the_threshold_tells_before_any_is_bad(self) -> None:
        slow = [20.0 if cell // 4 in (3, 11) else 0.0 for cell in range(64)]
        assert clustering(Counts([25.0] * 64, [0.0] * 64)) == 1
        assert clustering(Counts([25.0] * 64, [0.0] * 64, (slow,))) > 20

    def test_the_highest_threshold_that_enough_are_beyond_tells(self) -> None:
        few, many = ([20.0 if cell in cells else 0.0 for cell in range(64)] for cells in ((10, 40), (10, 11, 40, 41)))
        nothing = [0.0] * 64
        assert clustering(Counts([25.0] * 64, nothing, (few, many))) == design_effect(many, [25.0] * 64)
        assert clustering(Counts([25.0] * 64, nothing, (many, few))) == design_effect(many, [25.0] * 64)

    @given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=50))
    def test_windows_are_joined_and_none_is_lost_but_the_last(self, pairs: list[tuple[int, int]]) -> None:
        windows = [Window(max(pair), min(pair), (max(pair),)) for pair in pairs]
        counts = counted(windows)
        assert all(each >= 10 for each in counts.total)
        assert 0 <= sum(window.total for window in windows) - sum(counts.total) < 10
        assert list(*counts.slow) == list(counts.total)


class TestProspects:
    """What a verdict will take."""

    @pytest.mark.parametrize("stable", [None, spread(9000, 18)])
    def test_a_candidate_that_goes_on_as_it_did_passes_with_what_was_said(self, stable: Counts | None) -> None:
        seen = spread(1000, 3)
        said = prospect(seen, stable, LIMIT)
        assert said.needed is not None
        assert 300 < said.needed < 4000
        further = spread(said.needed + 1, int(said.share * said.needed))
        beside = spread(9 * said.needed, int(9 * said.share * said.needed)) if stable else None
        found = judge({"ttft": Sample(further, beside, LIMIT)}, least_requests=0)
        assert found.answer is Answer.PASS

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
        assert seconds_left(1000, 400, 0) == seconds_left(None, 400, 10) == inf


def test_the_error_level_is_divided_among_objectives_and_steps() -> None:
    assert shared_level(0.05, objectives=2, steps=5) == pytest.approx(0.005)
    assert shared_level(0.05, objectives=0, steps=0) == pytest.approx(0.05)
