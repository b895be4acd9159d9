"""When requests are due: pure functions of a seed.

A shape is a rate over time, in straight pieces. Arrivals are a unit process (even, or exponential gaps) seen through
the inverse of the rate's integral, so every shape has both kinds of arrivals and the same laws.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Spacing(StrEnum):
    """How arrivals lie around their rate."""

    POISSON = "poisson"
    """Independent clients: exponential gaps."""
    CONSTANT = "constant"
    """Even gaps: kinder than clients are."""


@dataclass(frozen=True)
class Piece:
    """A stretch of time over which the rate goes in a straight line from `first` to `last`."""

    seconds: float
    first: float
    """Requests a second at its beginning."""
    last: float

    @property
    def requests(self) -> float:
        """Expected arrivals."""
        return self.seconds * (self.first + self.last) / 2


Shape = Sequence[Piece]


@dataclass(frozen=True)
class Bursts:
    """Quiet and loud times in turn, as in logs of people at work: most bursts are short, a few are very long.

    The mean rate is what was asked for: the quiet rate follows from it.
    """

    factor: float = 5.0
    """Rate in a burst over the quiet rate."""
    burst_seconds: float = 2.0
    """Mean length of a burst; lengths follow a Pareto law, cut at `longest` times the shortest."""
    quiet_seconds: float = 18.0
    """Mean length between bursts, exponential."""
    tail: float = 1.5
    """The Pareto law's exponent: the smaller, the longer the longest bursts. Above 1."""
    longest: float = 40.0

    def quiet_rate(self, rate: float) -> float:
        """Requests a second between bursts, for a mean of `rate`."""
        share = self.burst_seconds / (self.burst_seconds + self.quiet_seconds)
        return rate / (1 - share + share * self.factor)


def steady(rate: float, seconds: float) -> Shape:
    """One rate all the time."""
    return (Piece(seconds, rate, rate),)


def ramp(rate: float, to: float, seconds: float) -> Shape:
    """From one rate to another in a straight line."""
    return (Piece(seconds, rate, to),)


def steps(rates: Sequence[float], seconds: float) -> Shape:
    """Rates one after the other, each for an equal share of the time."""
    return tuple(Piece(seconds / len(rates), rate, rate) for rate in rates)


def bursts(rate: float, seconds: float, settings: Bursts, seed: int) -> Shape:
    """Drawn quiet and loud times; `rate` is the mean over many of them, not of each run."""
    quiet = settings.quiet_rate(rate)
    return tuple(_until(seconds, _turns(quiet, settings, Random(f"{seed}/bursts"))))  # noqa: S311  repeatable by intent


def _turns(quiet: float, settings: Bursts, random: Random) -> Iterator[Piece]:
    a, k = settings.tail, settings.longest
    shortest = settings.burst_seconds * (a - 1) / (a - k ** (1 - a))
    loud = quiet * settings.factor
    while True:
        yield Piece(random.expovariate(1 / settings.quiet_seconds), quiet, quiet)
        yield Piece(min(shortest * random.paretovariate(a), shortest * k), loud, loud)


def _until(seconds: float, pieces: Iterator[Piece]) -> Iterator[Piece]:
    left = seconds
    for piece in pieces:
        yield Piece(min(piece.seconds, left), piece.first, piece.last)
        left -= piece.seconds
        if left <= 0:
            return


def arrivals(shape: Shape, spacing: Spacing, seed: int) -> Iterator[float]:
    """Seconds from the start at which requests are due, ascending."""
    return _through(shape, _poisson(seed) if spacing is Spacing.POISSON else _even())


def _even() -> Iterator[float]:
    place = 0
    while True:
        yield float(place)
        place += 1


def _poisson(seed: int) -> Iterator[float]:
    random = Random(f"{seed}/arrivals")  # noqa: S311  repeatable by intent
    at = 0.0
    while True:
        at += random.expovariate(1.0)
        yield at


def _through(shape: Shape, units: Iterator[float]) -> Iterator[float]:
    began, passed, unit = 0.0, 0.0, next(units)
    for piece in shape:
        while unit < passed + piece.requests:
            yield began + _inverse(piece, unit - passed)
            unit = next(units)
        began += piece.seconds
        passed += piece.requests


def _inverse(piece: Piece, requests: float) -> float:
    """Seconds into a piece after which `requests` are expected."""
    slope = (piece.last - piece.first) / piece.seconds
    root = math.sqrt(max(0.0, piece.first**2 + 2 * slope * requests))
    return min(piece.seconds, 2 * requests / (piece.first + root)) if requests else 0.0
