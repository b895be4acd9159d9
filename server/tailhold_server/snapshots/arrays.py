"""Arrays of a snapshot without a copy, and the checks that make them safe to index with."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailhold_server.scoring import MOST_NUMBER, usable
from tailhold_server.snapshots.manifest import SnapshotRefused

_BLOCK = 1 << 20


def floats(data: memoryview) -> NDArray[np.float32]:
    """The file's numbers."""
    return np.frombuffer(data, dtype="<f4")


def ints(data: memoryview) -> NDArray[np.int32]:
    """The file's numbers."""
    return np.frombuffer(data, dtype="<i4")


def longs(data: memoryview) -> NDArray[np.int64]:
    """The file's numbers."""
    return np.frombuffer(data, dtype="<i8")


def check_offsets(path: Path, offsets: NDArray[np.int64], length: int) -> None:
    """Raises SnapshotRefused for anything but a rise from 0 to `length`."""
    if offsets[0] != 0 or offsets[-1] != length or (offsets[1:] < offsets[:-1]).any():
        raise refused(path, f"offsets that rise from 0 to {length}", f"{offsets[0]} to {offsets[-1]}")


def check_range(path: Path, values: NDArray[np.int32] | NDArray[np.int64], limit: int, least: int = 0) -> None:
    """Raises SnapshotRefused for a number below `least`, or from `limit` on."""
    if len(values) and (values.min() < least or values.max() >= limit):
        raise refused(path, f"numbers from {least} to {limit - 1}", f"{values.min()} to {values.max()}")


def check_finite(path: Path, vectors: NDArray[np.float32]) -> None:
    """Raises SnapshotRefused for NaN, infinity, and numbers whose products might be."""
    rows = max(1, _BLOCK // vectors.shape[1])
    for start in range(0, len(vectors), rows):
        if not usable(vectors[start : start + rows]).all():
            found = f"NaN, infinity or larger ones in rows {start} to {start + rows}"
            raise refused(path, f"numbers up to {MOST_NUMBER:g}", found)


def refused(path: Path, expected: str, got: object) -> SnapshotRefused:
    """What is said of a file that is not what it should be."""
    return SnapshotRefused(f"{path}: expected {expected}, got {got}; rebuild the snapshot")
