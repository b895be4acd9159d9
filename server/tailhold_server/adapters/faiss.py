"""Approximate search by FAISS on the CPU, with exact scores at its end.

An index is put together from a snapshot's arrays, whose numbers were proved to be in range: nothing is parsed by FAISS,
and no file chooses which of its types is made.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, MOST_CANDIDATES, SearchParameters
from tailhold_api.sources import Metric
from tailhold_server.ports import Searcher
from tailhold_server.scoring import best_of, blocks, check_search, compared, normalised, unfilled
from tailhold_server.snapshots.structure import HNSWArrays, IVFPQArrays

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Allowed = NDArray[np.bool_]

_FEW = 4096
"""So many vectors are compared one by one: sooner done than a walk through a graph that most of is closed."""


class Candidates(Protocol):
    """Finds what may be among the best."""

    def find(self, questions: Vectors, k: int, parameters: SearchParameters, allowed: Allowed | None = None) -> Ids:
        """At least k ids a question, -1 where there are fewer; of those that are allowed alone."""

    def rows(self, ids: Ids) -> Vectors:
        """The vectors as they are compared."""


class FaissSearcher:
    """Orders an index's candidates by their exact scores: those of `FlatSearcher`, to the bit.

    FAISS's objects are no object of several threads: the retrieval thread alone calls `search`. One thread computes,
    since one question takes well under a millisecond and OpenMP's idle threads would spin on the engine's cores.
    """

    def __init__(self, candidates: Candidates, metric: Metric, count: int) -> None:
        self._candidates = candidates
        self._cosine = metric is Metric.COSINE
        self._count = count

    @property
    def count(self) -> int:
        """Vectors searched."""
        return self._count

    def search(
        self,
        vectors: Vectors,
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: Allowed | None = None,
    ) -> tuple[Vectors, NDArray[np.int64]]:
        """Scores, best first, and ids; a place that nothing fills has id -1 and score -inf.

        With `allowed` no place is left unfilled for which there is a vector: the search is exact where few are allowed,
        and where the approximate one found too few of them. Raises ValueError as `check_search` does.
        """
        check_search(vectors, k, allowed, self._count)
        questions = compared(vectors, cosine=self._cosine)
        scores, ids = unfilled(len(questions), k)
        among = self._count if allowed is None else int(np.count_nonzero(allowed))
        wanted = min(k, among)
        if not (wanted and len(questions)):
            return scores, ids
        candidates = self._found(questions, wanted, parameters, allowed, among)
        for row, found in enumerate(candidates):
            known = found[found >= 0]
            if allowed is not None and len(known) < wanted:
                known = np.flatnonzero(allowed)
            best = best_of(self._candidates.rows, known, questions[row], k, cosine=self._cosine)
            scores[row, : len(best[0])], ids[row, : len(best[0])] = best
        return scores, ids

    def _found(
        self, questions: Vectors, wanted: int, parameters: SearchParameters, allowed: Allowed | None, among: int
    ) -> Ids:
        if allowed is not None and among <= max(_FEW, wanted):
            return np.broadcast_to(np.flatnonzero(allowed), (len(questions), among))
        with one_thread():
            return self._candidates.find(questions, wanted, parameters, allowed)


def searcher_of(vectors: Vectors, metric: Metric, structure: IVFPQArrays | HNSWArrays) -> Searcher:
    """The search through this structure over these vectors."""
    cosine = metric is Metric.COSINE
    made: Candidates
    if isinstance(structure, HNSWArrays):
        made = HNSWCandidates(hnsw_index(vectors, structure, cosine=cosine))
    else:
        made = IVFPQCandidates(ivfpq_index(structure), vectors, cosine=cosine)
    return FaissSearcher(made, metric, len(vectors))


class HNSWCandidates:
    """A graph over the vectors in FAISS's own memory, which the exact scores read too."""

    def __init__(self, index: faiss.IndexHNSWFlat) -> None:
        self._index = index
        flat = faiss.downcast_index(index.storage)
        self._rows: Vectors = faiss.rev_swig_ptr(flat.get_xb(), index.ntotal * index.d).reshape(-1, index.d)

    def find(self, questions: Vectors, k: int, parameters: SearchParameters, allowed: Allowed | None = None) -> Ids:
        """All that the walk through the graph kept: the more of it is closed, the wider it goes."""
        wide = 1.0 if allowed is None else self._index.ntotal / max(1, np.count_nonzero(allowed))
        kept = max(k, parameters.ef_search, min(int(parameters.ef_search * wide), MOST_CANDIDATES))
        told = faiss.SearchParametersHNSW(efSearch=kept, **_selector(allowed))
        ids: Ids = self._index.search(questions, min(kept, self._index.ntotal), params=told)[1]
        return ids

    def rows(self, ids: Ids) -> Vectors:
        """The vectors as they are compared."""
        return self._rows[ids]


class IVFPQCandidates:
    """Codes in memory; the vectors stay in the mapped file, read where a candidate is scored."""

    def __init__(self, index: faiss.IndexIVFPQ, vectors: Vectors, *, cosine: bool) -> None:
        self._index = index
        self._vectors = vectors
        self._cosine = cosine

    def find(self, questions: Vectors, k: int, parameters: SearchParameters, allowed: Allowed | None = None) -> Ids:
        """The best by their codes in the probed lists; in all lists where those hold too few that are allowed."""
        most = min(max(k, min(k * parameters.rescore_factor, MOST_CANDIDATES)), self._index.ntotal)
        told = faiss.SearchParametersIVF(nprobe=min(parameters.probes, self._index.nlist), **_selector(allowed))
        ids: Ids = self._index.search(questions, most, params=told)[1]
        lacking = (ids >= 0).sum(axis=1) < k
        if allowed is not None and lacking.any():
            told.nprobe = self._index.nlist
            ids[lacking] = self._index.search(questions[lacking], most, params=told)[1]
        return ids

    def rows(self, ids: Ids) -> Vectors:
        """The vectors as they are compared."""
        rows = self._vectors[ids]
        return normalised(rows) if self._cosine else rows


def hnsw_index(vectors: Vectors, graph: HNSWArrays, *, cosine: bool) -> faiss.IndexHNSWFlat:
    """The graph over the vectors. A walk begins at the first vector of the top layer."""
    index = faiss.IndexHNSWFlat(vectors.shape[1], graph.neighbours, faiss.METRIC_INNER_PRODUCT)
    fill(index, vectors, cosine=cosine)
    hnsw, top = index.hnsw, int(graph.levels.max())
    # How many links precede each layer's, for as many layers as there are.
    before = graph.neighbours * np.array([0, *range(2, top + 2)], dtype=np.int32)
    faiss.copy_array_to_vector(before, hnsw.cum_nneighbor_per_level)
    faiss.copy_array_to_vector(graph.levels.astype(np.int32), hnsw.levels)
    faiss.copy_array_to_vector(graph.starts().astype(np.uint64), hnsw.offsets)
    faiss.copy_array_to_vector(graph.links.astype(np.int32), hnsw.neighbors)
    hnsw.entry_point = int(np.argmax(graph.levels))
    hnsw.max_level = top - 1
    return index


def fill(index: faiss.IndexHNSWFlat, vectors: Vectors, *, cosine: bool) -> None:
    """Store the vectors without a graph."""
    storage = faiss.downcast_index(index.storage)
    for block in blocks(vectors, cosine=cosine):
        storage.add(block)
    index.ntotal = len(vectors)


def ivfpq_index(lists: IVFPQArrays) -> faiss.IndexIVFPQ:
    """The lists with their codes."""
    pieces, codes, _ = lists.codebooks.shape
    index = empty_ivfpq(lists.centres.shape[1], len(lists.centres), pieces, codes.bit_length() - 1)
    index.quantizer.add(np.ascontiguousarray(lists.centres, dtype=np.float32))
    faiss.copy_array_to_vector(np.array(lists.codebooks, dtype=np.float32).ravel(), index.pq.centroids)
    index.is_trained = True
    for number, (start, end) in enumerate(zip(lists.offsets[:-1], lists.offsets[1:], strict=True)):
        ids, packed = np.array(lists.ids[start:end]), np.array(lists.codes[start:end])
        if len(ids):
            index.invlists.add_entries(number, len(ids), faiss.swig_ptr(ids), faiss.swig_ptr(packed))
    index.ntotal = len(lists.ids)
    return index


def empty_ivfpq(dimension: int, lists: int, subquantizers: int, bits: int) -> faiss.IndexIVFPQ:
    """Not trained yet. Cosine is the inner product of normalised vectors."""
    centres = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFPQ(centres, dimension, lists, subquantizers, bits, faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical = True  # what FAISS's index_factory sets for inner products
    return index


def _selector(allowed: Allowed | None) -> dict[str, faiss.IDSelector]:
    """As FAISS's parameters take it: one bit for each vector."""
    return {} if allowed is None else {"sel": faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))}


@contextmanager
def one_thread() -> Iterator[None]:
    """Of FAISS, in the calling thread. Put back, since torch may share its OpenMP, and embeds in the same thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
