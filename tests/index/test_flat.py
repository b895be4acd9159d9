import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from tailhold_api.sources import Metric
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.scoring import MOST_NUMBER

Vectors = NDArray[np.float32]
NUMBERS = st.floats(-100, 100, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3)


def vectors(rows: st.SearchStrategy[int]) -> st.SearchStrategy[Vectors]:
    return rows.flatmap(lambda n: arrays.arrays(np.float32, (n, 4), elements=NUMBERS))


def brute_force(index: Vectors, question: Vectors, metric: Metric) -> NDArray[np.float64]:
    rows, wide = index.astype(np.float64), question.astype(np.float64)
    scores = rows @ wide
    if metric is Metric.COSINE:
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(wide)
        scores = np.where(lengths > 0, scores / np.where(lengths > 0, lengths, 1), 0)
    return scores


@given(vectors(st.integers(0, 40)), vectors(st.integers(1, 4)), st.integers(0, 50), st.sampled_from(Metric))
def test_the_best_k_are_those_of_a_brute_force_search(
    index: Vectors, questions: Vectors, k: int, metric: Metric
) -> None:
    scores, ids = FlatSearcher(index, metric).search(questions, k)
    assert scores.shape == ids.shape == (len(questions), k)
    for row, question in enumerate(questions):
        truth = brute_force(index, question, metric)
        found = ids[row][ids[row] >= 0]
        tolerance = 1e-4 * max(1.0, float(np.abs(truth).max(initial=0)))
        assert len(set(found.tolist())) == len(found) == min(k, len(index))
        np.testing.assert_allclose(scores[row][: len(found)], truth[found], atol=tolerance)
        np.testing.assert_allclose(np.sort(truth)[::-1][: len(found)], truth[found], atol=tolerance)


@given(vectors(st.integers(1, 20)), st.integers(1, 10))
def test_c78_cosine_scores_stay_within_one(index: Vectors, k: int) -> None:
    scores, ids = FlatSearcher(index, Metric.COSINE).search(index, k)
    found = scores[ids >= 0]
    assert (np.abs(found) <= 1).all()


def test_c78_a_longer_vector_is_not_a_nearer_one() -> None:
    index = np.array([[5.0, 5.0], [0.9, 0.1]], np.float32)
    question = np.array([[1.0, 0.0]], np.float32)
    _, cosine = FlatSearcher(index, Metric.COSINE).search(question, 2)
    _, product = FlatSearcher(index, Metric.INNER_PRODUCT).search(question, 2)
    assert cosine.tolist() == [[1, 0]]
    assert product.tolist() == [[0, 1]]


def test_c73_places_that_nothing_fills_are_minus_one() -> None:
    index = np.eye(2, dtype=np.float32)
    scores, ids = FlatSearcher(index, Metric.COSINE).search(index[:1], 5)
    assert ids.tolist() == [[0, 1, -1, -1, -1]]
    assert (scores[0, 2:] == -np.inf).all()


def test_c73_an_empty_index_finds_nothing() -> None:
    searcher = FlatSearcher(np.zeros((0, 3), np.float32), Metric.COSINE)
    _, ids = searcher.search(np.ones((2, 3), np.float32), 3)
    assert searcher.count == 0
    assert (ids == -1).all()


def test_c79_a_question_that_is_not_finite_gets_no_answer() -> None:
    searcher = FlatSearcher(np.eye(3, dtype=np.float32), Metric.COSINE)
    with pytest.raises(ValueError, match="NaN"):
        searcher.search(np.array([[np.nan, 0, 0]], np.float32), 1)
    with pytest.raises(ValueError, match="NaN"):
        FlatSearcher(np.array([[np.inf, 0]], np.float32), Metric.COSINE)


@pytest.mark.parametrize("metric", list(Metric))
def test_a_number_whose_products_leave_float32_is_refused_and_the_largest_gives_a_finite_score(metric: Metric) -> None:
    """A passage whose score is infinite would be found by nobody."""
    most = np.full((2, 1024), MOST_NUMBER, np.float32) * np.array([[1], [-1]], np.float32)
    searcher = FlatSearcher(most, metric)
    scores, ids = searcher.search(most[:1], 2)
    assert np.isfinite(scores).all()
    assert ids.tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="numbers beyond 1e"):
        searcher.search(most[:1] * 10, 1)
    with pytest.raises(ValueError, match="numbers beyond 1e"):
        FlatSearcher(most * 10, metric)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 33))
def test_answers_depend_neither_on_the_batch_nor_on_chance(seed: int, batch: int) -> None:
    random = np.random.default_rng(seed)
    index = random.normal(size=(300, 48)).astype(np.float32)
    index[100:200] = index[:100]  # many equal scores
    searcher = FlatSearcher(index, Metric.COSINE)
    questions = random.normal(size=(batch, 48)).astype(np.float32)
    scores, ids = searcher.search(questions, 7)
    for row in range(batch):
        alone_scores, alone_ids = searcher.search(questions[row : row + 1], 7)
        assert (alone_scores == scores[row]).all()
        assert (alone_ids == ids[row]).all()
        ranks = [(-score, number) for score, number in zip(scores[row], ids[row], strict=True)]
        assert ranks == sorted(ranks)
