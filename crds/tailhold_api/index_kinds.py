"""The kinds of index, what each is built of, and what a search of it may be told.

What is built into a snapshot and what only a search reads are models of their own: the first is part of what an index
Job is given, the second of what running pods are handed.
"""

from enum import StrEnum

from tailhold_api.fields import Model, live, reload

MOST_CANDIDATES = 2048
"""FAISS's limit on a GPU for the passages of one search, candidates for the exact scores among them."""


class IndexKind(StrEnum):
    """How vectors are searched."""

    FLAT = "Flat"
    IVFPQ = "IVFPQ"
    HNSW = "HNSW"
    CAGRA = "CAGRA"


class IVFPQStructure(Model):
    """What an IVFPQ index is built of."""

    lists: int = reload(1024, ge=1, le=65536)
    """Lists that the vectors are sorted into, each around a centre. A search reads `probes` of them. About the square
    root of the number of passages, up to four times that; needs at least as many passages, 39 times as many to be
    trained well. More make a search read less and the build longer."""
    subquantizers: int = reload(64, ge=1, le=2048)
    """Pieces that a vector is cut into, each stored as one code of `bitsPerCode`. `embedder.dimension` must be a
    multiple of it. Twice as many double the memory of the codes, and find more before `rescore` has to mend it."""
    bits_per_code: int = reload(8, ge=4, le=8)
    """Bits of one code: 8 tell 256 pieces apart and need at least 256 passages. Fewer save memory, lose recall, and
    search slower: codes are then taken apart bit by bit."""


class IVFPQ(IVFPQStructure):
    """Vectors sorted into lists and stored as short codes: the smallest memory, approximate."""

    probes: int = live(32, ge=1, le=65536)
    """Lists that a search reads, of all `lists`. Search time grows with it, and so does recall: raise it when good
    passages are missed, lower it when searches take too long."""


class HNSWStructure(Model):
    """What an HNSW index is built of."""

    neighbours: int = reload(32, ge=4, le=128)
    """Links of each vector in the graph; the lowest layer has twice as many. 8 bytes x `neighbours` x passages of
    memory. 16 is enough for small dimensions; raise it when recall stays low with a large `efSearch`."""
    ef_construction: int = reload(128, ge=8, le=4096)
    """Candidates looked at for the links of each vector while building. More take longer to build, cost nothing in the
    search, and give a better graph."""


class HNSW(HNSWStructure):
    """Whole vectors joined by a graph: the fastest search on a CPU at high recall, with memory for the links."""

    ef_search: int = live(64, ge=1, le=2048)
    """Candidates that a search keeps, at least `retrieval.topK`; all of them get exact scores. Search time grows with
    it, and so does recall."""


class Rescore(Model):
    """Exact scores for what short codes only guess at."""

    factor: int = live(10, ge=1, le=512)
    """A search takes `factor` x `retrieval.topK` candidates by their codes and orders them by the stored vectors. Codes
    alone find about half of the true best ten. More candidates find more and read more vectors from memory, or from
    the volume. At most 2048 candidates."""


class SearchParameters(Model):
    """What a search of a chosen kind is told. Those of other kinds stand at their default."""

    probes: int = IVFPQ.model_fields["probes"].default
    """Lists that a search of an IVFPQ index reads."""
    rescore_factor: int = Rescore.model_fields["factor"].default
    """Candidates for each passage, of a search of an IVFPQ index."""
    ef_search: int = HNSW.model_fields["ef_search"].default
    """Candidates that a search of an HNSW index keeps."""


BY_DEFAULT = SearchParameters()
"""A search that nobody told anything."""
