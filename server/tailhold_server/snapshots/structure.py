"""What an approximate search walks through, as arrays: every number is proved to be in range before FAISS sees it.

FAISS's own files are not used: their reader is native code that takes lengths from the file, and a graph's file holds
the vectors a second time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import IVFPQStructure
from tailhold_server.snapshots import manifest as names
from tailhold_server.snapshots.arrays import check_finite, check_offsets, check_range, floats, ints, longs, refused
from tailhold_server.snapshots.manifest import Manifest

_MOST_LEVELS = 32
"""FAISS draws at most 15 for the fewest links."""


@dataclass(frozen=True)
class IVFPQArrays:
    """Lists of codes."""

    centres: NDArray[np.float32]
    """A row for each list."""
    codebooks: NDArray[np.float32]
    """Subquantizers x codes x numbers in a piece."""
    offsets: NDArray[np.int64]
    """Where each list begins in `ids` and `codes`, and where the last ends."""
    ids: NDArray[np.int64]
    """The vectors of the lists, one list after another: each vector once."""
    codes: NDArray[np.uint8]
    """A row of packed codes for each of `ids`."""


@dataclass(frozen=True)
class HNSWArrays:
    """A graph in layers."""

    neighbours: int
    """Links of a vector in each layer; the lowest has twice as many."""
    levels: NDArray[np.int32]
    """Layers that each vector is in, from the lowest up."""
    links: NDArray[np.int32]
    """Of one vector after another, its layers from the lowest up; -1 ends a layer's links early."""

    def starts(self) -> NDArray[np.int64]:
        """Where each vector's links begin, and where the last one's end."""
        lengths = self.neighbours * (self.levels.astype(np.int64) + 1)
        return np.concatenate(([0], np.cumsum(lengths)))


Structure = IVFPQArrays | HNSWArrays | None


def code_bytes(subquantizers: int, bits: int) -> int:
    """Of one vector's packed codes."""
    return (subquantizers * bits + 7) // 8


def structure_files(structure: Structure) -> dict[str, bytes]:
    """The files by name."""
    if isinstance(structure, IVFPQArrays):
        return {
            names.CENTRES: structure.centres.astype("<f4").tobytes(),
            names.LIST_OFFSETS: structure.offsets.astype("<i8").tobytes(),
            names.LIST_IDS: structure.ids.astype("<i8").tobytes(),
            names.CODEBOOKS: structure.codebooks.astype("<f4").tobytes(),
            names.CODES: structure.codes.tobytes(),
        }
    if isinstance(structure, HNSWArrays):
        return {
            names.LEVELS: structure.levels.astype("<i4").tobytes(),
            names.LINKS: structure.links.astype("<i4").tobytes(),
        }
    return {}


def structure_sizes(manifest: Manifest) -> dict[str, int]:
    """Bytes of each file whose length follows from the manifest alone."""
    count, width = manifest.count, manifest.dimension
    if (ivfpq := manifest.ivfpq) is not None:
        return {
            names.CENTRES: 4 * ivfpq.lists * width,
            names.LIST_OFFSETS: 8 * (ivfpq.lists + 1),
            names.LIST_IDS: 8 * count,
            names.CODEBOOKS: 4 * width * 2**ivfpq.bits_per_code,
            names.CODES: count * code_bytes(ivfpq.subquantizers, ivfpq.bits_per_code),
        }
    return {names.LEVELS: 4 * count} if manifest.hnsw else {}


def read_structure(folder: Path, files: Mapping[str, memoryview], manifest: Manifest) -> Structure:
    """Raises SnapshotRefused for a number that a search could not be given."""
    if manifest.ivfpq is not None:
        return _ivfpq(folder, files, manifest, manifest.ivfpq)
    if manifest.hnsw is not None:
        return _hnsw(folder, files, manifest.hnsw.neighbours)
    return None


def _ivfpq(folder: Path, files: Mapping[str, memoryview], manifest: Manifest, shape: IVFPQStructure) -> IVFPQArrays:
    pieces = (shape.subquantizers, 2**shape.bits_per_code, manifest.dimension // shape.subquantizers)
    found = IVFPQArrays(
        centres=floats(files[names.CENTRES]).reshape(shape.lists, manifest.dimension),
        codebooks=floats(files[names.CODEBOOKS]).reshape(pieces),
        offsets=longs(files[names.LIST_OFFSETS]),
        ids=longs(files[names.LIST_IDS]),
        codes=np.frombuffer(files[names.CODES], dtype=np.uint8).reshape(manifest.count, -1),
    )
    check_finite(folder / names.CENTRES, found.centres)
    check_finite(folder / names.CODEBOOKS, found.codebooks.reshape(-1, pieces[-1]))
    check_offsets(folder / names.LIST_OFFSETS, found.offsets, manifest.count)
    check_range(folder / names.LIST_IDS, found.ids, manifest.count)
    if len(np.unique(found.ids)) != manifest.count:
        raise refused(folder / names.LIST_IDS, "each vector once", "one twice")
    return found


def _hnsw(folder: Path, files: Mapping[str, memoryview], neighbours: int) -> HNSWArrays:
    found = HNSWArrays(neighbours, ints(files[names.LEVELS]), ints(files[names.LINKS]))
    check_range(folder / names.LEVELS, found.levels, _MOST_LEVELS + 1, least=1)
    starts = found.starts()
    if (size := len(files[names.LINKS])) != 4 * starts[-1]:
        raise refused(folder / names.LINKS, f"{4 * starts[-1]} bytes", size)
    check_range(folder / names.LINKS, found.links, len(found.levels), least=-1)
    _check_layers(folder / names.LINKS, found, starts)
    return found


def _check_layers(path: Path, found: HNSWArrays, starts: NDArray[np.int64]) -> None:
    # A link to a vector that is not in its layer would be followed into another vector's links.
    for layer in range(1, int(found.levels.max())):
        members = np.flatnonzero(found.levels > layer)
        first = starts[members] + found.neighbours * (layer + 1)
        linked = found.links[first[:, None] + np.arange(found.neighbours)]
        if ((linked >= 0) & (found.levels[linked] <= layer)).any():
            raise refused(path, f"links of layer {layer} within it", "one that leads out of it")
