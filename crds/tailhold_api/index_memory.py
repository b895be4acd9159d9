"""Host memory of an index, before there is one."""

from tailhold_api.index_kinds import HNSWStructure, IVFPQStructure

_FLOAT = 4
_ID = 8
_LINK = 4


def index_bytes(structure: IVFPQStructure | HNSWStructure | None, dimension: int, count: int) -> int:
    """Bytes that searches touch once the index is loaded; without a structure it is flat.

    The vectors themselves are among them for every kind: `Flat` and `HNSW` hold them, `IVFPQ` reads those of its
    candidates from the mapped file, in page cache that the kernel may take back (`vector_bytes`). The formulas are
    FAISS's own, from its wiki's "Guidelines to choose an index" and the members of IndexHNSW and IndexIVFPQ.
    """
    vectors = vector_bytes(dimension, count)
    if isinstance(structure, IVFPQStructure):
        return vectors + _ivfpq_bytes(structure, dimension, count)
    if isinstance(structure, HNSWStructure):
        return vectors + _hnsw_bytes(structure, count)
    return vectors


def vector_bytes(dimension: int, count: int) -> int:
    """Of the stored float32 vectors."""
    return _FLOAT * dimension * count


def _ivfpq_bytes(structure: IVFPQStructure, dimension: int, count: int) -> int:
    """A code and an id for each vector; a centre for each list; the codebooks."""
    code = (structure.subquantizers * structure.bits_per_code + 7) // 8
    centres = structure.lists * dimension
    codebooks = (1 << structure.bits_per_code) * dimension
    return count * (code + _ID) + _FLOAT * (centres + codebooks)


def _hnsw_bytes(structure: HNSWStructure, count: int) -> int:
    """Twice `neighbours` links in the lowest layer; in those above, one vector in `neighbours` has as many again.

    Each vector has its number of layers and where its links begin, too.
    """
    neighbours = structure.neighbours
    links = 2 * neighbours + neighbours / (neighbours - 1)
    return round(count * (links * _LINK + _LINK + _ID))
