"""One objective: what the counts say about the candidate, alone and beside the stable side."""

from dataclasses import dataclass
from enum import StrEnum
from math import log

import numpy as np
from numpy.typing import NDArray

from tailhold_operator.judge.clustering import clustering, design_effect
from tailhold_operator.judge.counts import Counts, Floats
from tailhold_operator.judge.evidence import Side, above, below, not_worse, worse

LEAST_CELLS = 8
LEAST_REQUESTS = 160
"""Before that many it cannot be seen whether slow requests come one by one or together."""


@dataclass(frozen=True)
class Limit:
    """What is asked of one objective, and how sure a verdict has to be."""

    allowed: float
    """Share of the requests that may be bad: 0.01 for a 99th percentile."""
    margin: float
    """By how much the candidate's share may be above the stable side's and still be called not worse."""
    fail_level: float = 0.05
    """The most probable that a candidate that deserves neither is ever called beyond the objective or worse than the
    stable side; each of the two has half where there is a stable side."""
    pass_level: float = 0.05
    """The most probable that a candidate worse by the margin is ever called not worse."""


@dataclass(frozen=True)
class Evidence:
    """Logarithms of e-values; minus infinity before there is enough to look at. Arrays in a simulation."""

    beyond: Floats
    """The candidate's share is above what is allowed."""
    worse: Floats
    not_worse: Floats
    """Without a stable side: not above what is allowed by more than the margin."""
    ways: int
    """To fail, among which the error level is divided."""

    def to_fail(self, limit: Limit) -> float:
        """What the evidence has to reach."""
        return log(self.ways / limit.fail_level)

    def to_pass(self, limit: Limit) -> float:
        """What the evidence has to reach."""
        return log(1 / limit.pass_level)


class Absolute(StrEnum):
    """The candidate against the objective."""

    BEYOND = "Beyond"
    NOT_BEYOND = "NotBeyond"
    """Not shown to be beyond; that it is within would take tens of thousands of requests."""


class Relative(StrEnum):
    """The candidate against the stable side over the same minutes."""

    WORSE = "Worse"
    NOT_WORSE = "NotWorse"
    OPEN = "Open"


class Outcome(StrEnum):
    """Of one objective."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"
    OPEN = "Open"
    BOTH_BEYOND = "BothBeyond"
    """The stable side breaks the promise as well: this is not the candidate's fault, and no reason to go on."""


TRUTH: dict[tuple[Absolute, Relative, bool], Outcome] = {
    (Absolute.NOT_BEYOND, Relative.NOT_WORSE, False): Outcome.PASS,
    (Absolute.NOT_BEYOND, Relative.OPEN, False): Outcome.OPEN,
    (Absolute.NOT_BEYOND, Relative.WORSE, False): Outcome.FAIL,
    (Absolute.BEYOND, Relative.NOT_WORSE, False): Outcome.FAIL,
    (Absolute.BEYOND, Relative.OPEN, False): Outcome.FAIL,
    (Absolute.BEYOND, Relative.WORSE, False): Outcome.FAIL,
    (Absolute.NOT_BEYOND, Relative.NOT_WORSE, True): Outcome.PASS,
    (Absolute.NOT_BEYOND, Relative.OPEN, True): Outcome.OPEN,
    (Absolute.NOT_BEYOND, Relative.WORSE, True): Outcome.FAIL,
    (Absolute.BEYOND, Relative.NOT_WORSE, True): Outcome.BOTH_BEYOND,
    (Absolute.BEYOND, Relative.OPEN, True): Outcome.BOTH_BEYOND,
    (Absolute.BEYOND, Relative.WORSE, True): Outcome.FAIL,
}
"""By the candidate alone, beside the stable side, and whether the stable side's own share is above what is allowed."""


def weigh(candidate: Counts, stable: Counts | None, limit: Limit) -> Evidence:
    """The evidence of all cells so far."""
    seen = Side(candidate.all_bad, candidate.all_total)
    enough = (seen.total >= LEAST_REQUESTS) & (candidate.cells >= LEAST_CELLS)
    beyond = above(seen.divided(design_effect(candidate.bad, candidate.total)), limit.allowed)
    if stable is None:
        doubt = clustering(candidate)
        apart = below(seen.divided(doubt), limit.allowed + limit.margin)
        return Evidence(_where(enough, beyond), np.full(np.shape(beyond), -np.inf), _where(enough, apart), ways=1)
    beside = Side(stable.all_bad, stable.all_total)
    enough_both = enough & (beside.total >= LEAST_REQUESTS) & (stable.cells >= LEAST_CELLS)
    own = np.maximum(design_effect(candidate.bad, candidate.total), design_effect(stable.bad, stable.total))
    doubt = np.maximum(clustering(candidate), clustering(stable))
    higher = worse(seen.divided(own), beside.divided(own), limit.allowed, limit.margin)
    alike = not_worse(seen.divided(doubt), beside.divided(doubt), limit.allowed, limit.margin)
    return Evidence(_where(enough, beyond), _where(enough_both, higher), _where(enough_both, alike), ways=2)


def outcome(evidence: Evidence, limit: Limit, *, stable_is_beyond: bool) -> Outcome:
    """By the truth table; `stable_is_beyond` is whether its share in the same minutes is above what is allowed."""
    return TRUTH[absolute(evidence, limit), relative(evidence, limit), stable_is_beyond]


def absolute(evidence: Evidence, limit: Limit) -> Absolute:
    """What is shown about the candidate alone."""
    return Absolute.BEYOND if evidence.beyond >= evidence.to_fail(limit) else Absolute.NOT_BEYOND


def relative(evidence: Evidence, limit: Limit) -> Relative:
    """What is shown about the two sides."""
    if evidence.worse >= evidence.to_fail(limit):
        return Relative.WORSE
    return Relative.NOT_WORSE if evidence.not_worse >= evidence.to_pass(limit) else Relative.OPEN


def _where(enough: NDArray[np.bool_], value: Floats) -> Floats:
    return np.where(enough, value, -np.inf)
