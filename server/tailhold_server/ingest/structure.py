"""What the chosen kind of index adds to a snapshot: its structure, and the recall of a search through it."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_api.conditions import Reason
from tailhold_api.index_kinds import IVFPQStructure
from tailhold_api.parts import BuildPart
from tailhold_api.sources import Metric
from tailhold_server.errors import StartError
from tailhold_server.ports import Searcher
from tailhold_server.snapshots import HNSWArrays, IVFPQArrays, Structure

NEIGHBOURS = 10
"""Recall is measured at the best ten."""
QUESTIONS = 500
"""Vectors that it is measured with: its standard error is below one percent."""
WELL_TRAINED = 39
"""Passages for each list, below which FAISS calls its training poor."""
_LEAST_BITS = 4
_SEED = 20
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Structured:
    """A structure and how well it is searched."""

    structure: Structure
    recall: float
    questions: int
    """That recall was measured with."""


EXACT = Structured(None, 1.0, 0)
"""A flat search."""


def build_structure(part: BuildPart, vectors: NDArray[np.float32]) -> Structured:
    """Build and measure. Raises StartError where there are too few vectors for the kind."""
    structure = _built(part, vectors)
    if structure is None:
        return EXACT
    from tailhold_server.adapters.faiss import searcher_of
    from tailhold_server.adapters.flat import FlatSearcher

    asked = sample(vectors)
    exact = neighbours(FlatSearcher(vectors, part.metric), vectors, asked)
    found = neighbours(searcher_of(vectors, part.metric, structure), vectors, asked)
    return Structured(structure, recall(exact, found), len(asked))


def check_size(shape: IVFPQStructure, count: int) -> None:
    """Raises StartError, final, for fewer vectors than FAISS can train centres and codebooks with."""
    needed = max(shape.lists, 2**shape.bits_per_code)
    if count < needed:
        raise StartError(
            Reason.INDEX_BUILD_FAILED,
            f"`index.kind: IVFPQ` needs at least {needed} passages, the corpus has {count}: use `index.kind: Flat`"
            + _lower(shape, count),
        )
    if count < WELL_TRAINED * shape.lists:
        _LOG.warning(
            "%d passages for %d lists: %d would train better centres, or lower `index.ivfpq.lists`",
            count, shape.lists, WELL_TRAINED * shape.lists,
        )  # fmt: skip


def _lower(shape: IVFPQStructure, count: int) -> str:
    """What else would do; nothing where the corpus is too small for any codes."""
    bits = count.bit_length() - 1
    if bits < _LEAST_BITS:
        return ""
    lists = [f"`index.ivfpq.lists` to at most {count}"] if count < shape.lists else []
    codes = [f"`index.ivfpq.bitsPerCode` to at most {bits}"] if bits < shape.bits_per_code else []
    return f", or lower {' and '.join(lists + codes)}"


def sample(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Rows that stand for questions: equal for equal numbers of vectors."""
    random = np.random.default_rng(_SEED)
    return np.sort(random.choice(len(vectors), min(QUESTIONS, len(vectors)), replace=False))


def neighbours(searcher: Searcher, vectors: NDArray[np.float32], asked: NDArray[np.int64]) -> list[list[int]]:
    """The best ten other vectors of each that is asked for: each would find itself, which proves nothing."""
    _, ids = searcher.search(vectors[asked], NEIGHBOURS + 1)
    return [
        [other for other in row if other >= 0 and other != own][:NEIGHBOURS]
        for row, own in zip(ids.tolist(), asked.tolist(), strict=True)
    ]


def recall(exact: list[list[int]], found: list[list[int]]) -> float:
    """Share of the exact ids that were found; 1 where there is nothing to find."""
    wanted = sum(map(len, exact))
    hits = sum(len(set(ours) & set(theirs)) for ours, theirs in zip(found, exact, strict=True))
    return round(hits / wanted, 4) if wanted else 1.0


def _built(part: BuildPart, vectors: NDArray[np.float32]) -> HNSWArrays | IVFPQArrays | None:
    cosine = part.metric is Metric.COSINE
    if part.ivfpq is not None:
        check_size(part.ivfpq, len(vectors))
        from tailhold_server.adapters.faiss_build import build_ivfpq

        return build_ivfpq(vectors, part.ivfpq, cosine=cosine)
    if part.hnsw is not None:
        from tailhold_server.adapters.faiss_build import build_hnsw

        return build_hnsw(vectors, part.hnsw, cosine=cosine)
    return None
