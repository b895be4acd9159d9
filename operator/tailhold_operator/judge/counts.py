"""Requests of one side of a comparison, counted in cells of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """Cells in order of time."""

    total: Sequence[float]
    bad: Sequence[float]
    slow: Sequence[Sequence[float]] = ()
    """Requests beyond thresholds below the objective's, the highest first: they cluster as the bad ones do, and
    are there to be seen long before these are."""


class Side(NamedTuple):
    """All cells together, or as many requests as they are worth."""

    bad: float
    total: float

    def divided(self, effect: float) -> "Side":
        """As so many independent requests."""
        return Side(self.bad / effect, self.total / effect)

    @property
    def share(self) -> float:
        """0 where there is none."""
        return self.bad / self.total if self.total else 0.0


def side_of(counts: Counts) -> Side:
    """The cells added up."""
    return Side(sum(counts.bad), sum(counts.total))


def counted(windows: Sequence[Window], smallest: float = SMALLEST_CELL) -> Counts:
    """Windows joined to cells of at least so many requests; what is left at the end waits for more.

    What is beyond lower thresholds is left out where not all windows have as many of them.
    """
    rows: list[tuple[float, ...]] = []
    unfinished: tuple[float, ...] = ()
    alike = len({len(window.slow) for window in windows}) == 1
    for window in windows:
        row = (window.total, window.bad, *(window.slow if alike else ()))
        unfinished = tuple(map(sum, zip(unfinished, row, strict=True))) if unfinished else row
        if unfinished[0] >= smallest:
            rows.append(unfinished)
            unfinished = ()
    total, bad, *slow = tuple(zip(*rows, strict=True)) if rows else ((), ())
    return Counts(total, bad, tuple(slow))
