"""How a new revision replaces the one that serves."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, part, policy

MOST_STEPS = 8


class RolloutStrategy(StrEnum):
    """How new pods replace old ones."""

    AUTO = "Auto"
    SURGE = "Surge"
    DRAIN_FIRST = "DrainFirst"


class OnUnknown(StrEnum):
    """What is done where a step has no verdict in time."""

    HOLD = "Hold"
    ROLLBACK = "Rollback"


class WeightStep(Model):
    """So much of the traffic until there is a verdict."""

    weight_percent: int = policy(ge=1, le=99)
    """Share of the requests that the candidate answers; what serves keeps the rest, to be compared with. With fewer
    candidate pods than that share needs it is less,
    so that each pod has the same load; `status.rollout` says so."""
    min_requests: int = policy(200, ge=1, le=100_000_000)
    """Requests of the candidate before the step can pass, whatever the statistics say. A verdict often takes more:
    `status.rollout` has how many."""
    max_seconds: int = policy(3600, ge=30, le=604800)
    """How long a verdict is waited for; then `onUnknown` holds. The step never passes by time alone."""


class Probe(Model):
    """Questions that a candidate pod is asked before it gets traffic. They warm it up as well."""

    requests: int = policy(20, ge=0, le=1000)
    """How many, made of passages of its own index; each has to be answered in full. 0 asks none."""
    min_recall_percent: float = policy(80.0, ge=0, le=100)
    """How many of the passages that an exact search finds its index has to find. Searches that are exact have 100. The
    default is for an index that is broken, not for one that is tuned: raise it to what yours reaches."""
    max_seconds: int = policy(60, ge=5, le=300)
    """How long all of them may take. Raise it for long answers on a slow engine."""


DEFAULT_STEPS = tuple(WeightStep(weight_percent=each) for each in (5, 25, 50))


class Rollout(Model):
    """How a new revision replaces the one that serves."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " && ".join(
                f"(self.steps.size() < {at + 2} || self.steps[{at}].weightPercent < self.steps[{at + 1}].weightPercent)"
                for at in range(MOST_STEPS - 1)
            ),
            "each entry of `steps` must have a higher `weightPercent` than the one before: put them in order, or take"
            " one out",
            {"steps": [{"weightPercent": 5}, {"weightPercent": 50}]},
            {"steps": [{"weightPercent": 50}, {"weightPercent": 5}]},
        ),
    )

    strategy: RolloutStrategy = policy(RolloutStrategy.AUTO)
    """`Surge` starts the new pods beside the old ones and needs room for both. `DrainFirst` stops the old ones first,
    an outage with one replica. `Auto` surges, and drains first when the scheduler reports no room."""
    steps: tuple[WeightStep, ...] = policy(DEFAULT_STEPS, max_length=MOST_STEPS)
    """With `slo.objectives`, how the traffic moves to a new revision: each step until the candidate is shown to be not
    worse than what serves. `[]` moves it all at once, without a verdict, as a pipeline without objectives does."""
    on_unknown: OnUnknown = policy(OnUnknown.HOLD)
    """Where a step has no verdict after its `maxSeconds`, for want of traffic or of metrics: `Hold` stays where it is
    until there is one, `Rollback` takes the candidate back. A candidate is never promoted for want of a verdict."""
    probe: Probe = part(Probe)
    """What a candidate is asked before it gets traffic, on a pipeline with `slo.objectives`."""
    deadline_seconds: int = policy(3600, ge=60, le=604800)
    """A revision that is not ready by then is given up; what served goes on serving."""
    history: int = policy(10, ge=1, le=50)
    """Revisions kept for a rollback."""
