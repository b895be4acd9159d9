"""A verdict over all objectives, with the numbers that it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tailhold_operator.judge.comparison import Evidence, Limit, Outcome, outcome, weigh
from tailhold_operator.judge.counts import Counts, Side, side_of
from tailhold_operator.judge.prospects import Prospect, prospect, seconds_left


class Answer(StrEnum):
    """What a rollout may do now."""

    PASS = "Pass"  # noqa: S105
    """Shown to be not worse by more than the margin, and not shown to be beyond the objective, in all objectives."""
    FAIL = "Fail"
    """Shown to be beyond an objective that the stable side keeps, or worse than it by more than the margin."""
    UNDECIDED = "Undecided"
    """Not enough requests yet for either."""
    BLIND = "Blind"
    """The counters could not be read: nothing is known, which is neither good nor bad."""


class Why(StrEnum):
    """The reason of a verdict."""

    NOT_WORSE = "NotWorse"
    BEYOND_OBJECTIVE = "BeyondObjective"
    WORSE_THAN_STABLE = "WorseThanStable"
    INSUFFICIENT_SAMPLES = "InsufficientSamples"
    NO_TRAFFIC = "NoTraffic"
    BOTH_BEYOND = "BothBeyond"
    """Both sides break the promise: load, a dependency or the node, and not what changed."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"


@dataclass(frozen=True)
class Sample:
    """The counts of one objective; `stable` is None where there is no other side to compare with."""

    candidate: Counts
    stable: Counts | None
    limit: Limit
    rate: float = 0.0
    """Requests a second that the candidate gets, to say when a verdict can come."""


@dataclass(frozen=True)
class Finding:
    """One objective of a verdict."""

    outcome: Outcome
    why: Why
    candidate: Side
    stable: Side
    """Without a request where there is no other side."""
    evidence: Evidence
    prospect: Prospect
    seconds_left: float
    """Until a candidate that goes on as it did can pass; infinite where it cannot be said."""


@dataclass(frozen=True)
class Verdict:
    """What is known now; `findings` by objective, none where the counters could not be read."""

    answer: Answer
    why: Why
    objective: str
    """The one that decided, or that needs longest."""
    findings: Mapping[str, Finding]


def judge(samples: Mapping[str, Sample] | None, least_requests: int) -> Verdict:
    """The verdict on one step of a rollout: `samples` by the objective's name, None where they could not be read.

    One objective that fails is enough to fail, so its error level has to be the share of all objectives and steps
    (`shared_level`); to pass, all have to.
    """
    if samples is None:
        return Verdict(Answer.BLIND, Why.METRICS_UNAVAILABLE, "", {})
    findings = {name: find(sample, least_requests) for name, sample in samples.items()}
    for answer, outcomes in _ORDER:
        named = [name for name, finding in findings.items() if finding.outcome in outcomes]
        if named:
            name = max(named, key=lambda each: findings[each].seconds_left)
            return Verdict(answer, findings[name].why, name, findings)
    return Verdict(Answer.UNDECIDED, Why.NO_TRAFFIC, "", findings)


_ORDER = (
    (Answer.FAIL, {Outcome.FAIL}),
    (Answer.UNDECIDED, {Outcome.BOTH_BEYOND}),
    (Answer.UNDECIDED, {Outcome.OPEN}),
    (Answer.PASS, {Outcome.PASS}),
)
"""A verdict of many objectives is the first of these that any of them has."""


def find(sample: Sample, least_requests: int) -> Finding:
    """One objective. What would pass on fewer requests than a step asks for waits for them."""
    evidence = weigh(sample.candidate, sample.stable, sample.limit)
    seen = side_of(sample.candidate)
    beside = Side(0, 0) if sample.stable is None else side_of(sample.stable)
    beyond = beside.share > sample.limit.allowed
    found = outcome(evidence, sample.limit, stable_is_beyond=beyond)
    if found is Outcome.PASS and seen.total < least_requests:
        found = Outcome.OPEN
    ahead = prospect(sample.candidate, sample.stable, sample.limit)
    needed = None if ahead.needed is None else max(ahead.needed, least_requests)
    left = seconds_left(needed, seen.total, sample.rate)
    return Finding(found, _why(found, seen.total, evidence), seen, beside, evidence, ahead, left)


def shared_level(level: float, objectives: int, steps: int) -> float:
    """The error level of each objective at each step, so that all of them together have `level` (Bonferroni)."""
    return level / max(1, objectives) / max(1, steps)


def _why(found: Outcome, total: float, evidence: Evidence) -> Why:
    if found is Outcome.PASS:
        return Why.NOT_WORSE
    if found is Outcome.BOTH_BEYOND:
        return Why.BOTH_BEYOND
    if found is Outcome.OPEN:
        return Why.INSUFFICIENT_SAMPLES if total else Why.NO_TRAFFIC
    return Why.BEYOND_OBJECTIVE if evidence.beyond >= evidence.worse else Why.WORSE_THAN_STABLE
