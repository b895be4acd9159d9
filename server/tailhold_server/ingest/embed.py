"""Vectors of passages: taken over from the last snapshot where it has them, else computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_server.ports import Encoder
from tailhold_server.scoring import usable
from tailhold_server.snapshots.read import Snapshot
from tailhold_server.vectors import NotFiniteError

_BATCH = 256


@dataclass(frozen=True)
class Embedded:
    """One row for each passage."""

    vectors: NDArray[np.float32]
    bad: tuple[int, ...]
    """Rows without a usable vector: NaN, infinite, close to it, or zero."""
    reused: int
    """Rows taken over."""


def embed(
    encoder: Encoder,
    passages: Sequence[str],
    hashes: Sequence[bytes],
    earlier: Snapshot | None,
    advance: Callable[[int], None],
) -> Embedded:
    """Embed what `earlier` has not; `advance` hears how many of all passages are done."""
    vectors = np.zeros((len(passages), encoder.dimension), dtype=np.float32)
    known = _known(earlier, encoder.dimension)
    missing = [row for row, each in enumerate(hashes) if each not in known]
    taken = [row for row, each in enumerate(hashes) if each in known]
    if earlier is not None and taken:
        vectors[taken] = earlier.vectors[[known[hashes[row]] for row in taken]]
    for start in range(0, len(missing), _BATCH):
        advance(len(taken) + start)
        rows = missing[start : start + _BATCH]
        vectors[rows] = _encode(encoder, [passages[row] for row in rows])
    advance(len(passages))
    good = usable(vectors) & vectors.any(axis=1)
    return Embedded(vectors, tuple(np.flatnonzero(~good).tolist()), len(taken))


def _known(earlier: Snapshot | None, dimension: int) -> dict[bytes, int]:
    if earlier is None or earlier.manifest.dimension != dimension:
        return {}
    return {earlier.chunks.passage(row): row for row in range(len(earlier.chunks))}


def _encode(encoder: Encoder, passages: Sequence[str]) -> NDArray[np.float32]:
    try:
        return encoder.encode(passages)
    except NotFiniteError as error:
        bad = set(error.rows)
    vectors = np.zeros((len(passages), encoder.dimension), dtype=np.float32)
    rows = [row for row in range(len(passages)) if row not in bad]
    if rows:
        vectors[rows] = _encode(encoder, [passages[row] for row in rows])
    return vectors
