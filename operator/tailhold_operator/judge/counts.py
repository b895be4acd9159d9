"""Requests of one side of a comparison, counted in cells of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

SMALLEST_CELL = 10
"""Requests. Windows with fewer are joined: how requests cluster cannot be seen in cells that are nearly empty."""


class Window(NamedTuple):
    """What one look at the counters added."""

    total: float
    bad: float
    slow: tuple[float, ...] = ()
    """Requests beyond each of the thresholds below the objective's, the highest first."""


@dataclass(frozen=True)
class Counts:
    """Cells in order of time are the last axis; the axes before it, if any, are runs of a simulation."""

    total: Floats
    bad: Floats
    slow: tuple[Floats, ...] = ()
    """Requests beyond thresholds below the objective's, the highest first: they cluster as the bad ones do, and
    are there to be seen long before these are."""

    @property
    def cells(self) -> int:
        """How many."""
        return int(self.bad.shape[-1])

    @property
    def all_total(self) -> Floats:
        """Requests of all cells."""
        return np.asarray(self.total.sum(axis=-1))

    @property
    def all_bad(self) -> Floats:
        """Bad requests of all cells."""
        return np.asarray(self.bad.sum(axis=-1))

    def until(self, cells: int) -> "Counts":
        """The first so many cells."""
        return Counts(self.total[..., :cells], self.bad[..., :cells], tuple(each[..., :cells] for each in self.slow))


def counted(windows: Sequence[Window], smallest: float = SMALLEST_CELL) -> Counts:
    """Windows joined to cells of at least so many requests; what is left at the end waits for more."""
    rows: list[NDArray[np.float64]] = []
    open_row: Floats | None = None
    for window in windows:
        row = np.array([window.total, window.bad, *window.slow], dtype=np.float64)
        open_row = row if open_row is None else open_row + row
        if open_row[0] >= smallest:
            rows.append(open_row)
            open_row = None
    width = 2 + len(windows[0].slow) if windows else 2
    table = np.array(rows, dtype=np.float64).reshape(-1, width).T
    return Counts(table[0], table[1], tuple(table[2:]))
