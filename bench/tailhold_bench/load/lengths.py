"""Distributions of whole numbers of at least one: words of a question, tokens of an answer."""

from dataclasses import dataclass
from random import Random
from typing import Protocol


class Lengths(Protocol):
    """Draws lengths."""

    def draw(self, random: Random) -> int:
        """One length, at least 1."""


@dataclass(frozen=True)
class Fixed:
    """Always the same."""

    length: int

    def draw(self, random: Random) -> int:
        """The length."""
        return self.length


@dataclass(frozen=True)
class Uniform:
    """Between two lengths, both included."""

    least: int
    most: int

    def draw(self, random: Random) -> int:
        """Any of them alike."""
        return random.randint(self.least, self.most)


@dataclass(frozen=True)
class LogNormal:
    """A long tail: half are below `median`, few are far above."""

    median: float
    sigma: float
    """Spread of the logarithm: 0.6 puts one in twenty above 2.7 medians."""
    most: int

    def draw(self, random: Random) -> int:
        """Rounded, and no longer than `most`."""
        return max(1, min(self.most, round(self.median * random.lognormvariate(0, self.sigma))))
