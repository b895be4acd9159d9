"""A search among some of the vectors: those that a tenant may see, and all of the k that there are."""

import numpy as np
import pytest
from clustered import clustered
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailhold_api.index_kinds import HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.adapters import faiss as adapter
from tailhold_server.adapters.faiss import searcher_of
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.ports import Searcher
from tailhold_server.testing import StandInSearcher

COUNT, DIMENSION = 2000, 16
VECTORS = clustered(COUNT, DIMENSION)
EXACT = FlatSearcher(VECTORS, Metric.COSINE)
EVERYTHING = SearchParameters(probes=16, rescore_factor=512, ef_search=COUNT)
LITTLE = SearchParameters(probes=1, rescore_factor=1, ef_search=1)


def flat(metric: Metric) -> Searcher:
    return FlatSearcher(VECTORS, metric)


def hnsw(metric: Metric) -> Searcher:
    cosine = metric is Metric.COSINE
    return searcher_of(VECTORS, metric, build_hnsw(VECTORS, HNSWStructure(neighbours=8), cosine=cosine))


def ivfpq(metric: Metric) -> Searcher:
    structure = IVFPQStructure(lists=16, subquantizers=8)
    return searcher_of(VECTORS, metric, build_ivfpq(VECTORS, structure, cosine=metric is Metric.COSINE))


@pytest.fixture(
    scope="module",
    params=[(kind, metric) for kind in (flat, hnsw, ivfpq) for metric in Metric],
    ids=lambda each: f"{each[0].__name__}-{each[1].value}",
)
def pair(request: pytest.FixtureRequest) -> tuple[Searcher, Metric]:
    kind, metric = request.param
    return kind(metric), metric


def masks() -> st.SearchStrategy[NDArray[np.bool_]]:
    """None, one, a few, half, whole clusters, nearly all."""
    share = st.sampled_from([0.0, 0.0005, 0.01, 0.5, 0.95, 1.0])
    return st.builds(_mask, st.integers(0, 10**6), share, st.booleans())


def _mask(seed: int, share: float, neighbours: bool) -> NDArray[np.bool_]:
    if neighbours:  # what a tenant has is about one thing: all of it lies in few lists
        scores = VECTORS @ VECTORS[seed % COUNT]
        return scores >= np.quantile(scores, 1 - share)
    return np.random.default_rng(seed).random(COUNT) < share


def among(metric: Metric, questions: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]) -> list[list[int]]:
    """Brute force over the allowed vectors alone."""
    kept = np.flatnonzero(allowed)
    _, ids = FlatSearcher(VECTORS[kept], metric).search(questions, k)
    return [[int(kept[each]) for each in row if each >= 0] for row in ids]


@settings(max_examples=60, deadline=None)
@given(masks(), st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 30), st.sampled_from([EVERYTHING, LITTLE]))
@pytest.mark.parametrize("few", [4096, 0], ids=["few are compared one by one", "the index is walked"])
def test_what_is_found_is_allowed_and_no_place_is_left_unfilled(
    pair: tuple[Searcher, Metric],
    few: int,
    allowed: NDArray[np.bool_],
    seed: int,
    batch: int,
    k: int,
    parameters: SearchParameters,
) -> None:
    searcher, metric = pair
    questions = clustered(batch, DIMENSION, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "_FEW", few)
        scores, ids = searcher.search(questions, k, parameters, allowed=allowed)
    truth = among(metric, questions, k, allowed)
    exact = isinstance(searcher, FlatSearcher) or few
    for row, wanted in enumerate(truth):
        found = ids[row][ids[row] >= 0].tolist()
        assert len(found) == len(set(found)) == min(k, int(allowed.sum()))
        assert allowed[found].all()
        assert (scores[row][len(found) :] == -np.inf).all()
        if exact:
            assert found == wanted
    if few == 0 and parameters is EVERYTHING:
        hits = [len(set(ids[row].tolist()) & set(wanted)) for row, wanted in enumerate(truth)]
        assert sum(hits) >= 0.8 * sum(map(len, truth))


def test_everything_allowed_is_no_filter(pair: tuple[Searcher, Metric]) -> None:
    searcher, _ = pair
    questions = clustered(5, DIMENSION, seed=3)
    open_to_all = searcher.search(questions, 10, EVERYTHING, allowed=np.ones(COUNT, dtype=np.bool_))
    plain = searcher.search(questions, 10, EVERYTHING)
    if isinstance(searcher, FlatSearcher):
        assert (open_to_all[1] == plain[1]).all()
    assert (open_to_all[0][:, 0] >= plain[0][:, 0]).all()


def test_the_stand_in_keeps_the_same_contract() -> None:
    allowed = np.random.default_rng(1).random(COUNT) < 0.01
    _, ids = StandInSearcher(VECTORS).search(VECTORS[:3], 50, allowed=allowed)
    kept = set(np.flatnonzero(allowed).tolist())
    assert [set(row[row >= 0].tolist()) for row in ids] == [kept] * 3
