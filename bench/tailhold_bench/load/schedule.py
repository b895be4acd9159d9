"""Requests with the time at which each is due."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from tailhold_bench.load.questions import Asked


class Due(NamedTuple):
    """One request."""

    number: int
    at: float
    """Seconds from the start."""
    asked: Asked


@dataclass(frozen=True)
class Schedule:
    """All requests of a run, in the order of their times."""

    due: tuple[Due, ...]

    @property
    def distinct(self) -> int:
        """How many different questions are asked."""
        return len({each.asked.question for each in self.due})

    def share(self, place: int, of: int) -> tuple[Due, ...]:
        """Every `of`-th request, for one of several processes."""
        return self.due[place::of]


def schedule(times: Iterable[float], asked: Iterator[Asked], most: int | None) -> Schedule:
    """Join times and questions, at most `most` of them."""
    due = (Due(number, at, next(asked)) for number, at in enumerate(times))
    return Schedule(tuple(islice(due, most)))
