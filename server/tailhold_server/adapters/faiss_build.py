"""Builds what an approximate search walks through, by FAISS on the CPU.

Equal vectors give equal arrays: seeds are fixed, and one thread builds. Links depend on the order in which vectors come
into a graph, which threads would leave to chance.
"""

import faiss
import numpy as np

from tailhold_api.index_kinds import HNSWStructure, IVFPQStructure
from tailhold_server.adapters.faiss import Vectors, empty_ivfpq, one_thread
from tailhold_server.scoring import blocks, compared
from tailhold_server.snapshots.structure import HNSWArrays, IVFPQArrays, code_bytes

_SEED = 1234
_TRAINING_PER_CENTRE = 256
"""FAISS itself takes no more vectors than this for each centre."""


def build_ivfpq(vectors: Vectors, shape: IVFPQStructure, *, cosine: bool) -> IVFPQArrays:
    """Train centres and codebooks, then sort and code all vectors. Needs enough of them."""
    index = empty_ivfpq(vectors.shape[1], shape.lists, shape.subquantizers, shape.bits_per_code)
    index.cp.seed = index.pq.cp.seed = _SEED
    # Its warnings go to standard error without a name; the Job says the same in its own words.
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    most = max(shape.lists, 2**shape.bits_per_code) * _TRAINING_PER_CENTRE
    with one_thread():
        index.train(_sample(vectors, most, cosine=cosine))
        for block in blocks(vectors, cosine=cosine):
            index.add(block)
    return _lists(index, shape)


def build_hnsw(vectors: Vectors, shape: HNSWStructure, *, cosine: bool) -> HNSWArrays:
    """Link the vectors, one after another."""
    index = faiss.IndexHNSWFlat(vectors.shape[1], shape.neighbours, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = shape.ef_construction
    with one_thread():
        for block in blocks(vectors, cosine=cosine):
            index.add(block)
    levels, links = faiss.vector_to_array(index.hnsw.levels), faiss.vector_to_array(index.hnsw.neighbors)
    return HNSWArrays(shape.neighbours, levels, links)


def _sample(vectors: Vectors, most: int, *, cosine: bool) -> Vectors:
    chosen = vectors
    if len(vectors) > most:
        chosen = vectors[np.sort(np.random.default_rng(_SEED).choice(len(vectors), most, replace=False))]
    return compared(chosen, cosine=cosine)


def _lists(index: faiss.IndexIVFPQ, shape: IVFPQStructure) -> IVFPQArrays:
    lists, width = index.invlists, code_bytes(shape.subquantizers, shape.bits_per_code)
    sizes = [lists.list_size(number) for number in range(shape.lists)]
    ids = [faiss.rev_swig_ptr(lists.get_ids(number), size) for number, size in enumerate(sizes) if size]
    codes = [faiss.rev_swig_ptr(lists.get_codes(number), size * width) for number, size in enumerate(sizes) if size]
    pieces = (shape.subquantizers, 2**shape.bits_per_code, index.d // shape.subquantizers)
    return IVFPQArrays(
        centres=index.quantizer.reconstruct_n(0, shape.lists),
        codebooks=faiss.vector_to_array(index.pq.centroids).reshape(pieces),
        offsets=np.cumsum([0, *sizes], dtype=np.int64),
        ids=np.concatenate(ids).astype(np.int64),
        codes=np.concatenate(codes).reshape(-1, width),
    )
