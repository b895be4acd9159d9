"""A search among some of the vectors: what may not be found takes no place of those that may."""

from typing import Any

import numpy as np
import pytest
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

RNG = np.random.default_rng(7)
VECTORS = RNG.standard_normal((600, 16)).astype(np.float32)
QUESTIONS = RNG.standard_normal((5, 16)).astype(np.float32)
DEEP = SearchParameters(probes=8, ef_search=600, rescore_factor=100)


def expected(allowed: NDArray[np.bool_], k: int) -> list[list[int]]:
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    scores = np.where(allowed, QUESTIONS @ unit.T, -np.inf)
    return [row[: min(k, int(allowed.sum()))].tolist() for row in np.argsort(-scores, axis=1, kind="stable")]


def searchers() -> dict[str, Searcher]:
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    return {
        "flat": FlatSearcher(VECTORS, Metric.COSINE),
        "hnsw": searcher_of(VECTORS, Metric.COSINE, build_hnsw(VECTORS, HNSWStructure(), cosine=True)),
        "ivfpq": searcher_of(
            VECTORS, Metric.COSINE, build_ivfpq(VECTORS, IVFPQStructure(lists=8, subquantizers=8), cosine=True)
        ),
        "stand-in": StandInSearcher(unit),
    }


@pytest.fixture(scope="module")
def known() -> dict[str, Searcher]:
    return searchers()


@pytest.mark.parametrize("few", [0, 4096], ids=["through the index", "one by one"])
@pytest.mark.parametrize("name", ["flat", "hnsw", "ivfpq", "stand-in"])
@settings(max_examples=25, deadline=None)
@given(share=st.sampled_from([0.0, 0.002, 0.05, 0.5, 1.0]), k=st.integers(1, 40), seed=st.integers(0, 99))
def test_the_best_of_those_that_may_be_found(
    known: dict[str, Searcher], name: str, few: int, share: float, k: int, seed: int
) -> None:
    allowed = np.random.default_rng(seed).random(len(VECTORS)) < share
    before, adapter._FEW = adapter._FEW, few
    try:
        _, ids = known[name].search(QUESTIONS, k, DEEP, allowed=allowed)
    finally:
        adapter._FEW = before
    assert ids.shape == (len(QUESTIONS), k)
    found: Any = [[each for each in row if each >= 0] for row in ids.tolist()]
    assert all(allowed[each] for row in found for each in row)
    assert [len(row) for row in found] == [min(k, int(allowed.sum()))] * len(QUESTIONS)
    if name != "ivfpq":
        assert found == expected(allowed, k)


@pytest.mark.parametrize("name", ["flat", "hnsw", "ivfpq", "stand-in"])
def test_all_allowed_is_no_filter(known: dict[str, Searcher], name: str) -> None:
    every = np.ones(len(VECTORS), dtype=np.bool_)
    for one, other in zip(
        known[name].search(QUESTIONS, 10, DEEP), known[name].search(QUESTIONS, 10, DEEP, allowed=every), strict=True
    ):
        np.testing.assert_array_equal(one, other)
