"""The exact search's short cuts: none of them changes an answer."""

import numpy as np
import pytest
import torch
from clustered import clustered
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailhold_api.index_kinds import HNSWStructure, IVFPQStructure, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.adapters import flat
from tailhold_server.adapters.coarse import Coarse
from tailhold_server.adapters.faiss import searcher_of
from tailhold_server.adapters.faiss_build import build_hnsw, build_ivfpq
from tailhold_server.adapters.flat import FlatSearcher
from tailhold_server.adapters.flat_graph import GraphSearch
from tailhold_server.ports import Searcher
from tailhold_server.scoring import MOST_PLACES, compared, ranked
from tailhold_server.testing import StandInSearcher

Vectors = NDArray[np.float32]
COUNT, DIMENSION = 6000, 24
VECTORS = clustered(COUNT, DIMENSION, subjects=40, spread=0.3)
LENGTHS = np.random.default_rng(5).lognormal(0, 2, (COUNT, 1)).astype(np.float32)


def truth(
    vectors: Vectors, question: Vectors, k: int, metric: Metric, allowed: NDArray[np.bool_] | None = None
) -> tuple[Vectors, NDArray[np.int64]]:
    """Every vector in full."""
    cosine = metric is Metric.COSINE
    ids = np.arange(len(vectors)) if allowed is None else np.flatnonzero(allowed)
    asked = compared(question[None], cosine=cosine)[0]
    return ranked(compared(vectors[ids], cosine=cosine), ids, asked, k, cosine=cosine)


@pytest.fixture(params=["one look", "many looks", "many looks, much in full"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many vectors one look holds, and how many candidates are kept for the end."""
    if request.param != "one look":
        monkeypatch.setitem(flat._MOST_ROWS, "cpu", 500)
    if "full" in request.param:
        monkeypatch.setattr(flat, "_MOST_NEAR", 30)


@pytest.mark.usefixtures("looks")
@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("spread", ["like texts", "of any length", "near to equal", "all equal"])
def test_blocks_and_bounds_change_nothing(metric: Metric, spread: str) -> None:
    """Order and scores to the bit, whatever the vectors are like: int8 alone could not tell the last two apart."""
    vectors = {
        "like texts": VECTORS,
        "of any length": VECTORS * LENGTHS,
        "near to equal": VECTORS[:1] + 1e-4 * VECTORS,
        "all equal": np.repeat(VECTORS[:1], COUNT, axis=0),
    }[spread]
    searcher = FlatSearcher(vectors, metric)
    questions = np.concatenate([clustered(5, DIMENSION, subjects=40, seed=9), vectors[17:18], 0 * vectors[:1]])
    scores, ids = searcher.search(questions, 10)
    for row, question in enumerate(questions):
        expected = truth(vectors, question, 10, metric)
        np.testing.assert_array_equal(ids[row], expected[1])
        np.testing.assert_array_equal(scores[row], expected[0])


SIZES = st.sampled_from([0.0, 1e-44, 1e-40, 1e-30, 1e-20, 1e-5, 1.0, 1e5, 1e15])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), SIZES, SIZES, st.integers(1, 80), st.sampled_from(Metric), st.booleans())
def test_no_length_is_too_small_or_too_large(
    seed: int, stored: float, asked: float, k: int, metric: Metric, mixed: bool
) -> None:
    """To the bit, where squares of the numbers are not float32 any more, and scores are zero or all but zero."""
    random = np.random.default_rng(seed)
    lengths = stored * (10.0 ** random.uniform(-20, 20, (60, 1)) if mixed else np.ones((60, 1)))
    vectors = (random.normal(size=(60, DIMENSION)) * np.minimum(lengths, 1e16)).astype(np.float32)
    vectors[::7] = 0
    question = (asked * random.normal(size=(1, DIMENSION))).astype(np.float32)
    scores, ids = FlatSearcher(vectors, metric).search(question, k)
    expected = truth(vectors, question[0], k, metric)
    np.testing.assert_array_equal(ids[0][ids[0] >= 0], expected[1])
    np.testing.assert_array_equal(scores[0][ids[0] >= 0], expected[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([torch.int8, torch.float16]), SIZES, SIZES, st.integers(1, 300))
@example(1, torch.int8, 1.0, 1.0, 1)
def test_a_look_never_says_less_than_the_score(
    seed: int, kind: torch.dtype, stored: float, asked: float, dimension: int
) -> None:
    """Nor so much that the lowest that it can be, by what the look is trusted with, is more than the score."""
    random = np.random.default_rng(seed)
    vectors = (stored * random.normal(size=(20, dimension)) * 10.0 ** random.uniform(-3, 3, (20, 1))).astype(np.float32)
    questions = (asked * random.normal(size=(3, dimension))).astype(np.float32)
    coarse = Coarse([vectors], 20, dimension, kind=kind, device="cpu")
    told = coarse.ask(torch.from_numpy(questions))
    scores = torch.from_numpy((questions.astype(np.float64) @ vectors.astype(np.float64).T).astype(np.float32))
    highest = coarse.highest(told, 0, 20).double()
    lowest = highest - 2 * told.slack.double() * coarse.scales.double()
    assert (highest * told.units.double() >= scores.double()).all()
    assert (lowest * told.units.double() <= scores.double()).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([torch.int8, torch.float16]))
def test_a_look_does_not_depend_on_how_much_is_looked_at(seed: int, kind: torch.dtype) -> None:
    """Blocks are summed where they lie: a second look sees the same, and so does one at a part."""
    random = np.random.default_rng(seed)
    vectors, questions = (random.normal(size=(n, DIMENSION)).astype(np.float32) for n in (40, 4))
    coarse = Coarse([vectors], 40, DIMENSION, kind=kind, device="cpu")
    told = coarse.ask(torch.from_numpy(questions))
    whole = coarse.highest(told, 0, 40).clone()
    slack = coarse.scales * told.slack
    parts = torch.cat([coarse.highest(told, 0, 13), coarse.highest(told, 13, 40)], dim=1)
    assert torch.equal(whole, coarse.highest(told, 0, 40))
    if kind is torch.int8:
        assert torch.equal(whole, parts)
    assert ((whole - parts).abs() <= slack).all()


@pytest.mark.parametrize("metric", list(Metric))
def test_where_all_is_closed_nothing_is_found(metric: Metric) -> None:
    scores, ids = FlatSearcher(VECTORS, metric).search(VECTORS[:3], 5, allowed=np.zeros(COUNT, dtype=np.bool_))
    assert (ids == -1).all()
    assert (scores == -np.inf).all()


@pytest.mark.usefixtures("looks")
def test_a_mask_is_looked_through_before_the_best_are_taken() -> None:
    searcher = FlatSearcher(VECTORS, Metric.COSINE)
    for seed, share in enumerate((0.0, 0.001, 0.1, 0.9, 1.0)):
        random = np.random.default_rng(seed)
        allowed = random.random(COUNT) < share
        question = clustered(1, DIMENSION, subjects=40, seed=seed)
        scores, ids = searcher.search(question, 12, allowed=allowed)
        expected = truth(VECTORS, question[0], 12, Metric.COSINE, allowed)
        found = ids[0][ids[0] >= 0]
        assert len(found) == min(12, int(allowed.sum()))
        np.testing.assert_array_equal(found, expected[1])
        np.testing.assert_array_equal(scores[0][: len(found)], expected[0])


@pytest.fixture(scope="module", params=["HNSW", "IVFPQ", "Flat", "stand-in"])
def searcher(request: pytest.FixtureRequest) -> Searcher:
    if request.param == "Flat":
        return FlatSearcher(VECTORS, Metric.COSINE)
    if request.param == "stand-in":
        return StandInSearcher(compared(VECTORS, cosine=True))
    if request.param == "HNSW":
        graph = build_hnsw(VECTORS, HNSWStructure(neighbours=8, ef_construction=40), cosine=True)
        return searcher_of(VECTORS, Metric.COSINE, graph)
    lists = build_ivfpq(VECTORS, IVFPQStructure(lists=32, subquantizers=8), cosine=True)
    return searcher_of(VECTORS, Metric.COSINE, lists)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 60), st.sampled_from([0.0, 0.002, 0.05, 0.5, 0.8, 0.99, 1.0]))
def test_no_kind_gives_what_is_not_allowed_nor_leaves_a_place_empty(
    searcher: Searcher, seed: int, k: int, share: float
) -> None:
    allowed = np.random.default_rng(seed).random(COUNT) < share
    questions = compared(clustered(2, DIMENSION, subjects=40, seed=seed), cosine=True)
    _, ids = searcher.search(questions, k, SearchParameters(probes=1, ef_search=1), allowed=allowed)
    for row in ids:
        found = row[row >= 0]
        assert allowed[found].all()
        assert len(set(found.tolist())) == len(found) == min(k, int(allowed.sum()))


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_no_kind_loses_recall_behind_a_mask(searcher: Searcher, share: float) -> None:
    """A graph's walk leads through vectors that may not be found."""
    questions = compared(clustered(50, DIMENSION, subjects=40, seed=4), cosine=True)

    def recall(allowed: NDArray[np.bool_]) -> float:
        _, ids = searcher.search(questions, 10, allowed=allowed)
        best = (truth(VECTORS, question, 10, Metric.COSINE, allowed)[1] for question in questions)
        return sum(len(set(row.tolist()) & set(own.tolist())) for row, own in zip(ids, best, strict=True)) / 500

    everything = np.ones(COUNT, dtype=np.bool_)
    assert recall(np.random.default_rng(3).random(COUNT) < share) >= recall(everything) - 0.02


@pytest.mark.parametrize("k", [-1, MOST_PLACES + 1])
def test_more_places_than_there_are_is_refused_by_name(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}: a search gives 0 to {MOST_PLACES} places"):
        FlatSearcher(VECTORS, Metric.COSINE).search(VECTORS[:1], k)


def test_a_mask_of_another_index_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=rf"shape \(3,\): give one truth for each of {COUNT} vectors"):
        FlatSearcher(VECTORS, Metric.COSINE).search(VECTORS[:1], 1, allowed=np.ones(3, dtype=bool))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([torch.int8, torch.float16]), st.booleans(), st.integers(1, 16))
def test_what_a_graph_is_certain_of_is_true(seed: int, kind: torch.dtype, masked: bool, k: int) -> None:
    """The steps of the GPU's graph, without a GPU: certain answers are exact, and most are certain."""
    random = np.random.default_rng(seed)
    count = 64 * 96 + int(random.integers(0, 64))
    vectors = compared(clustered(count, DIMENSION, subjects=300, seed=seed), cosine=True)
    coarse = Coarse([vectors], count, DIMENSION, kind=kind, device="cpu")
    allowed = random.random(count) < 0.5 if masked else None
    closed = None if allowed is None else torch.from_numpy(~allowed)
    questions = compared(clustered(8, DIMENSION, subjects=300, seed=seed + 1), cosine=True)
    found = GraphSearch(coarse, [vectors], cosine=True).step(torch.from_numpy(questions), torch.tensor([k]), 16, closed)
    certain = found[:, -1] > 0
    for row in torch.nonzero(certain).flatten().tolist():
        scores, ids = truth(vectors, questions[row], k, Metric.COSINE, allowed)
        assert found[row, 16 : 16 + k].long().tolist() == ids.tolist()
        np.testing.assert_array_equal(found[row, :k].float().numpy(), scores)
    assert int(certain.sum()) >= (7 if kind is torch.float16 else 1)
