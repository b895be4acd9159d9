"""One objective: what the counts say about the candidate, alone and beside the stable side."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, log

from tailhold_operator.judge.clustering import clustering, design_effect
from tailhold_operator.judge.counts import Counts, side_of
from tailhold_operator.judge.evidence import above, below, not_worse, worse

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
    """Logarithms of e-values; minus infinity before there is enough to look at."""

    beyond: float
    """The candidate's share is above what is allowed."""
    worse: float
    not_worse: float
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
    ways = 1 if stable is None else 2
    if not _enough(candidate):
        return Evidence(-inf, -inf, -inf, ways)
    seen, own = side_of(candidate), design_effect(candidate.bad, candidate.total)
    beyond = above(seen.divided(own), limit.allowed)
    if stable is None:
        within = below(seen.divided(clustering(candidate)), limit.allowed + limit.margin)
        return Evidence(beyond, -inf, within, ways)
    if not _enough(stable):
        return Evidence(beyond, -inf, -inf, ways)
    beside, others = side_of(stable), design_effect(stable.bad, stable.total)
    either, doubt = max(own, others), max(clustering(candidate), clustering(stable))
    higher = worse(seen.divided(either), beside.divided(either), limit.allowed, limit.margin)
    alike = not_worse(seen.divided(doubt), beside.divided(doubt), limit.allowed, limit.margin)
    return Evidence(beyond, higher, alike, ways)


def _enough(counts: Counts) -> bool:
    return len(counts.total) >= LEAST_CELLS and sum(counts.total) >= LEAST_REQUESTS


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
