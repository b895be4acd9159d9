"""What a pipeline's revisions were seen to do, look by look, and the verdict on a step of a rollout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tailhold_api.slo import Objective
from tailhold_operator.judge.comparison import Limit
from tailhold_operator.judge.counts import Window, counted
from tailhold_operator.judge.verdict import Sample, Verdict, judge, shared_level

BLIND_AFTER = timedelta(seconds=30)
"""One look that fails is no news; counters go on, and the next look reads what this one missed."""
_RATE_OVER = timedelta(minutes=1)


@dataclass(frozen=True)
class Look:
    """What all pods added since the look before."""

    at: datetime
    windows: Mapping[str, Mapping[str, Window]]
    """By the revision's name and the objective's. A revision without a request is missing."""


@dataclass(frozen=True)
class Watched:
    """All that is remembered of a pipeline. Kept in memory: after a restart of the operator it begins anew, so that a
    step takes longer and nothing is taken for seen."""

    looks: tuple[Look, ...] = ()
    """Oldest first."""
    read_at: datetime | None = None
    """When all pods that answer requests were last read; None before the first time."""

    def is_blind(self, now: datetime) -> bool:
        """Whether the counters cannot be read: nothing is known then, neither good nor bad."""
        return self.read_at is None or now - self.read_at > BLIND_AFTER


@dataclass(frozen=True)
class Trial:
    """A step of a rollout that is to be judged."""

    candidate: str
    """The revision's name."""
    stable: str | None
    """The one to compare with; None where it does not serve beside the candidate."""
    since: datetime
    """Looks of before belong to other weights."""
    objectives: Sequence[Objective]
    error_share: float
    """How often at most a good candidate is called bad over all steps and objectives, and how often one that is worse
    by the margin is called good."""
    margin: float | None
    """By how much a share of bad requests may be above the stable side's; None for as much as the objective allows."""
    steps: int
    """Over which the error is divided."""
    least_requests: int


def judge_step(watched: Watched, trial: Trial, now: datetime) -> Verdict:
    """What is known of a step now."""
    if watched.is_blind(now):
        return judge(None, trial.least_requests)
    looks = [look for look in watched.looks if look.at > trial.since]
    samples = {each.name: _sample(looks, trial, each, now) for each in trial.objectives}
    return judge(samples, trial.least_requests)


def _sample(looks: Sequence[Look], trial: Trial, objective: Objective, now: datetime) -> Sample:
    candidate = _windows(looks, trial.candidate, objective.name)
    stable = _windows(looks, trial.stable, objective.name) if trial.stable else None
    return Sample(
        counted(candidate),
        None if stable is None else counted(stable),
        _limit(trial, objective),
        _rate(looks, trial, objective.name, now),
    )


def _limit(trial: Trial, objective: Objective) -> Limit:
    """Passing divides its error over the steps alone: all objectives have to pass, so each guards the others."""
    return Limit(
        objective.allowed,
        objective.allowed if trial.margin is None else trial.margin,
        fail_level=shared_level(trial.error_share, len(trial.objectives), trial.steps),
        pass_level=shared_level(trial.error_share, 1, trial.steps),
    )


def _windows(looks: Sequence[Look], revision: str, objective: str) -> list[Window]:
    found = (look.windows.get(revision, {}).get(objective) for look in looks)
    return [window for window in found if window]


def _rate(looks: Sequence[Look], trial: Trial, objective: str, now: datetime) -> float:
    """Requests a second that the candidate got lately."""
    since = max(trial.since, now - _RATE_OVER)
    lately = [look for look in looks if look.at > since]
    seconds = (now - since).total_seconds()
    return sum(window.total for window in _windows(lately, trial.candidate, objective)) / max(seconds, 1.0)
