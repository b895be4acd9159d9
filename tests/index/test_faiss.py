"""Approximate search: the same contract as the exact one, with some of the best missing."""

import faiss
import numpy as np
import pytest
from clustered import clustered
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.index_memory import index_bytes, vector_bytes
from tailhold_api.sources import Metric
from tailhold_server.adapters.faiss import hnsw_index, ivfpq_index, searcher_of
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.ingest.structure import neighbours, recall, sample
from tailhold_server.ports import Searcher
from tailhold_server.snapshots import HNSWArrays, IVFPQArrays

Vectors = NDArray[np.float32]
Shape = HNSWStructure | IVFPQStructure

COUNT, DIMENSION = 3000, 32
GRAPH = HNSWStructure(neighbours=8, ef_construction=40)
LISTS = IVFPQStructure(lists=32, subquantizers=8)
EVERYTHING = SearchParameters(probes=32, rescore_factor=512, ef_search=COUNT)
VECTORS = clustered(COUNT, DIMENSION)


def built(vectors: Vectors, shape: Shape, metric: Metric) -> HNSWArrays | IVFPQArrays:
    cosine = metric is Metric.COSINE
    if isinstance(shape, HNSWStructure):
        return build_hnsw(vectors, shape, cosine=cosine)
    return build_ivfpq(vectors, shape, cosine=cosine)


@pytest.fixture(
    scope="module",
    params=[(shape, metric) for shape in (GRAPH, LISTS) for metric in Metric],
    ids=lambda each: f"{type(each[0]).__name__}-{each[1].value}",
)
def pair(request: pytest.FixtureRequest) -> tuple[Searcher, Searcher]:
    """An approximate search and the exact one."""
    shape, metric = request.param
    return searcher_of(VECTORS, metric, built(VECTORS, shape, metric)), FlatSearcher(VECTORS, metric)


PARAMETERS = st.builds(
    SearchParameters, probes=st.integers(1, 99), rescore_factor=st.integers(1, 99), ef_search=st.integers(1, 500)
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 120), PARAMETERS)
def test_what_is_found_has_its_exact_score_and_place(
    pair: tuple[Searcher, Searcher], seed: int, batch: int, k: int, parameters: SearchParameters
) -> None:
    near, exact = pair
    questions = clustered(batch, DIMENSION, seed=seed)
    scores, ids = near.search(questions, k, parameters)
    assert scores.shape == ids.shape == (batch, k)
    all_scores, all_ids = exact.search(questions, COUNT)
    for row in range(batch):
        found = ids[row][ids[row] >= 0]
        assert (ids[row][len(found) :] == -1).all()
        assert (scores[row][len(found) :] == -np.inf).all()
        order = [all_ids[row].tolist().index(each) for each in found]
        assert order == sorted(set(order))  # each once, in the exact search's own order
        np.testing.assert_array_equal(scores[row][: len(found)], all_scores[row][order])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 33), PARAMETERS)
def test_answers_depend_not_on_the_batch(
    pair: tuple[Searcher, Searcher], seed: int, batch: int, parameters: SearchParameters
) -> None:
    questions = clustered(batch, DIMENSION, seed=seed)
    scores, ids = pair[0].search(questions, 7, parameters)
    for row in range(batch):
        alone = pair[0].search(questions[row : row + 1], 7, parameters)
        assert (alone[0] == scores[row]).all()
        assert (alone[1] == ids[row]).all()


def test_more_effort_finds_no_less_and_all_of_it_nearly_everything(pair: tuple[Searcher, Searcher]) -> None:
    """The parameters reach the search: a content part changes them without another index."""
    near, exact = pair
    asked = sample(VECTORS)[:100]
    truth = neighbours(exact, VECTORS, asked)
    little = SearchParameters(probes=1, rescore_factor=1, ef_search=1)

    def found(parameters: SearchParameters) -> float:
        _, ids = near.search(VECTORS[asked], 11, parameters)
        others = [[i for i in row if i != own][:10] for row, own in zip(ids.tolist(), asked.tolist(), strict=True)]
        return recall(truth, others)

    assert found(little) < found(BY_DEFAULT) - 0.01
    assert found(BY_DEFAULT) >= 0.95
    assert found(EVERYTHING) >= 0.99


def test_rescoring_mends_what_codes_alone_miss() -> None:
    shape = IVFPQStructure(lists=32, subquantizers=4)
    near = searcher_of(VECTORS, Metric.COSINE, built(VECTORS, shape, Metric.COSINE))
    _, truth = FlatSearcher(VECTORS, Metric.COSINE).search(VECTORS[:200], 10)
    found = {
        factor: recall(
            truth.tolist(), near.search(VECTORS[:200], 10, SearchParameters(rescore_factor=factor))[1].tolist()
        )
        for factor in (1, 20)
    }
    assert found[1] < 0.7
    assert found[20] > 0.9


def test_c73_fewer_vectors_than_asked_for_leave_places_unfilled() -> None:
    few = VECTORS[:3]
    near = searcher_of(few, Metric.COSINE, build_hnsw(few, GRAPH, cosine=True))
    scores, ids = near.search(few[:1], 5)
    assert near.count == 3
    assert sorted(ids[0].tolist()) == [-1, -1, 0, 1, 2]
    assert ids[0].tolist()[3:] == [-1, -1]
    assert (scores[0, 3:] == -np.inf).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_c79_a_question_that_is_not_finite_gets_no_answer(number: float, pair: tuple[Searcher, Searcher]) -> None:
    with pytest.raises(ValueError, match="NaN"):
        pair[0].search(np.full((1, DIMENSION), number, np.float32), 1)


def test_c05_no_search_asks_for_more_candidates_than_faiss_takes_on_a_gpu() -> None:
    vectors = clustered(4000, 16)
    shape = IVFPQStructure(lists=1, subquantizers=4, bits_per_code=4)
    near = searcher_of(vectors, Metric.COSINE, built(vectors, shape, Metric.COSINE))
    most = SearchParameters(probes=65536, rescore_factor=512)
    assert near._candidates.find(vectors[:1], 100, most).shape == (1, 2048)  # type: ignore[attr-defined]
    assert (near.search(vectors[:1], 100, most)[1] >= 0).all()


def test_a_search_leaves_the_threads_of_others_alone(pair: tuple[Searcher, Searcher]) -> None:
    """The encoder computes in the same thread."""
    faiss.omp_set_num_threads(2)
    pair[0].search(VECTORS[:1], 3)
    assert faiss.omp_get_max_threads() == 2


def test_zero_vectors_score_zero() -> None:
    vectors = np.concatenate([VECTORS[:50], np.zeros((5, DIMENSION), np.float32)])
    near = searcher_of(vectors, Metric.COSINE, build_hnsw(vectors, GRAPH, cosine=True))
    scores, ids = near.search(vectors[:1], 55, EVERYTHING)
    assert (scores[0][ids[0] >= 50] == 0).all()
    assert (near.search(vectors[-1:], 3)[0] == 0).all()


@pytest.mark.parametrize("shape", [GRAPH, LISTS, IVFPQStructure(lists=16, subquantizers=8, bits_per_code=5)])
def test_equal_vectors_give_equal_arrays(shape: Shape) -> None:
    one, two = (vars(built(VECTORS, shape, Metric.COSINE)) for _ in range(2))
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])


def test_the_graph_that_is_put_together_is_the_one_that_was_built() -> None:
    graph = build_hnsw(VECTORS, GRAPH, cosine=False)
    again = hnsw_index(VECTORS, graph, cosine=False)
    theirs = faiss.IndexHNSWFlat(DIMENSION, GRAPH.neighbours, faiss.METRIC_INNER_PRODUCT)
    faiss.omp_set_num_threads(1)
    theirs.hnsw.efConstruction = GRAPH.ef_construction
    theirs.add(VECTORS)
    for name in ("levels", "offsets", "neighbors"):
        mine, other = (faiss.vector_to_array(getattr(each.hnsw, name)) for each in (again, theirs))
        np.testing.assert_array_equal(mine, other)
    told = faiss.SearchParametersHNSW(efSearch=64)
    np.testing.assert_array_equal(
        again.search(VECTORS[:20], 5, params=told)[1], theirs.search(VECTORS[:20], 5, params=told)[1]
    )


@pytest.mark.parametrize(
    "shape",
    [
        HNSWStructure(neighbours=4, ef_construction=20),
        HNSWStructure(neighbours=32, ef_construction=20),
        IVFPQStructure(lists=16, subquantizers=8),
        IVFPQStructure(lists=64, subquantizers=16, bits_per_code=5),
    ],
)
@pytest.mark.parametrize("count", [600, 3000])
def test_memory_is_what_faiss_itself_holds(shape: Shape, count: int) -> None:
    vectors = VECTORS[:count]
    arrays = built(vectors, shape, Metric.INNER_PRODUCT)
    if isinstance(arrays, HNSWArrays):
        held = faiss.serialize_index(hnsw_index(vectors, arrays, cosine=False)).nbytes - vectors.nbytes
    else:  # the vectors stay in the mapped file
        held = faiss.serialize_index(ivfpq_index(arrays)).nbytes
    assert index_bytes(shape, DIMENSION, count) - vector_bytes(DIMENSION, count) == pytest.approx(held, rel=0.1)
    assert index_bytes(None, DIMENSION, count) == vectors.nbytes
