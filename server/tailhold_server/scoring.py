"""Exact scores: what every kind of search ends with, so that equal passages score alike whatever found them."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

_BLOCK_NUMBERS = 1 << 22
"""Numbers that are normalised at once: 32 MiB."""
_BLOCK_ROWS = 8192
MOST_PLACES = 1 << 16
"""Of one search."""
MOST_NUMBER = 1e17
"""In a vector, either side of zero. Products of vectors with larger ones could leave float32, and a passage whose score
is infinite is found by nobody; embedders give numbers around 1."""


def normalised(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length 1; a zero row stays zero."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (wide / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def usable(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows can be compared: finite, and no number so large that a score would not be."""
    fits: NDArray[np.bool_] = np.all(np.abs(vectors) <= MOST_NUMBER, axis=1)  # which NaN is not
    return fits


def blocks(vectors: NDArray[np.float32], *, cosine: bool) -> Iterator[NDArray[np.float32]]:
    """The rows as they are compared, some at a time: all of them in float64 would be twice the index."""
    step = max(1, _BLOCK_NUMBERS // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        yield normalised(block) if cosine else np.ascontiguousarray(block, dtype=np.float32)


def compared(vectors: NDArray[np.float32], *, cosine: bool) -> NDArray[np.float32]:
    """A copy of all rows as they are compared."""
    out, start = np.empty(vectors.shape, dtype=np.float32), 0
    for block in blocks(vectors, cosine=cosine):
        out[start : start + len(block)] = block
        start += len(block)
    return out


def ranked(
    rows: NDArray[np.float32], ids: NDArray[np.int64], question: NDArray[np.float32], k: int, *, cosine: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The best k of the candidates `ids` whose vectors are `rows`: best first, equal scores by id.

    With `cosine`, rows and question are normalised already, and scores are clipped to [-1, 1].
    """
    scores = (rows.astype(np.float64) * question.astype(np.float64)).sum(axis=1).astype(np.float32)
    if cosine:
        scores = np.clip(scores, -1, 1)
    order = np.lexsort((ids, -scores))[:k]
    return scores[order], ids[order]


def best_of(
    rows_of: Callable[[NDArray[np.int64]], NDArray[np.float32]],
    ids: NDArray[np.int64],
    question: NDArray[np.float32],
    k: int,
    *,
    cosine: bool,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """`ranked` of any number of candidates, some thousand at a time: all in float64 might be twice the index."""
    best = np.empty(0, dtype=np.int64)
    for start in range(0, max(1, len(ids)), _BLOCK_ROWS):
        block = np.concatenate([best, ids[start : start + _BLOCK_ROWS]])
        scores, best = ranked(rows_of(block), block, question, k, cosine=cosine)
    return scores, best


def check_search(vectors: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None, count: int) -> None:
    """Raises ValueError for what no search can answer: a question that is not usable gets no answer at all."""
    if not usable(vectors).all():
        raise ValueError(f"a question's vector holds NaN, infinity, or numbers beyond {MOST_NUMBER:g}")
    if not 0 <= k <= MOST_PLACES:
        raise ValueError(f"k is {k}: a search gives 0 to {MOST_PLACES} places")
    if allowed is not None and allowed.shape != (count,):
        raise ValueError(f"allowed has shape {allowed.shape}: give one truth for each of {count} vectors")


def unfilled(questions: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and ids of places that nothing fills."""
    return np.full((questions, k), -np.inf, dtype=np.float32), np.full((questions, k), -1, dtype=np.int64)
