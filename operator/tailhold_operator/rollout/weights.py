"""How many candidate pods a share of the traffic needs, and what share so many pods get."""

from collections.abc import Sequence

from tailhold_api.rollout import WeightStep
from tailhold_operator.rollout.view import View


def step_of(view: View, at: int) -> WeightStep:
    """The step by its number; the last one where an edit left fewer."""
    return step_at(view.rules.steps, at)


def step_at(steps: Sequence[WeightStep], at: int) -> WeightStep:
    """The same."""
    return steps[min(at, len(steps) - 1)]


def needed(replicas: int, weight: int) -> int:
    """Candidate pods for the same load per pod as `replicas` others have beside them."""
    if weight >= 100:
        return replicas
    return max(1, min(replicas, -(-replicas * weight // (100 - weight))))


def given(view: View, weight: int) -> int:
    """The share that is asked for, or as much of it as gives each pod the same load where candidate pods are missing.

    With all of them there, more than half is no more than each gets once it is promoted.
    """
    candidates, others = view.confirmed, view.stable.ready if view.stable else 0
    if candidates >= view.replicas:
        return weight
    return min(weight, 100 * candidates // (candidates + others)) if candidates else 0
