"""Where the Service is turned, and what becomes of the pods that it turned away from."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.parts import SHORT
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import FINE, Finding, stuck, waiting
from tailhold_operator.history import Failure
from tailhold_operator.rollout.view import POLL, SETTLE, Step, View, moment


def switch(view: View, now: datetime) -> Step:
    """The Service turns to the candidate; the old pods stay until every node knows."""
    serving = view.serving or ""
    old = {serving: view.stable.wanted} if view.stable else {}
    history = view.history.model_copy(update={"switched_at": stamp(now)})
    outcome = waiting(Reason.ROLLING_OUT, "the new pods are ready and take over")
    return Step(view.part, {**old, view.part: view.replicas}, history, outcome, SETTLE)


def hold(view: View, failure: Failure) -> Step:
    """The revision was given up: what served before serves on, with all its pods."""
    serving = view.serving or ""
    return Step(serving, {serving: view.replicas}, view.history, given_up(failure))


def give_up(view: View, finding: Finding, now: datetime) -> Step:
    """Give the revision that is tried beside another one up."""
    failed, failure = with_failure(view, finding, now)
    return hold(failed, failure)


def with_failure(view: View, finding: Finding, now: datetime) -> tuple[View, Failure]:
    """Remember why the revision was given up."""
    failure = Failure(name=view.target.name, reason=finding.reason.value, message=finding.message, at=stamp(now))
    return replace(view, history=view.history.with_failure(failure)), failure


def given_up(failure: Failure) -> Finding:
    """What is said of a revision that was given up."""
    return stuck(Reason(failure.reason), failure.message)


def go_back(view: View, failure: Failure) -> Step | None:
    """From a revision that the Service was turned to and that failed, to the one before it; None where it is another
    content of the same pods.

    Where the old pods are gone, the failed ones make room for them: no more is held than there was. Where they are
    there and do not answer, what answers stays until they do.
    """
    before = view.history.proven
    if before is None or before.pod_digest[:SHORT] == view.part:
        return None
    back = before.pod_digest[:SHORT]
    side = view.sides.get(back)
    why = view.lacks or (side.trouble.message if side and side.wanted and not side.ready else "")
    if not why or not (view.fresh and view.fresh.ready):
        return Step(back, {back: view.replicas}, view.history, given_up(failure), POLL)
    both = {view.part: view.replicas, back: view.replicas}
    told = f"{failure.message}; the revision before it cannot serve, so this one does: {why}"
    return Step(view.part, both, view.history, stuck(Reason(failure.reason), told), POLL)


def settled(view: View, failure: Failure | None) -> Finding:
    """Whether the revision that the Service sends to is on all its pods."""
    if failure:
        return given_up(failure)
    fresh = view.fresh
    if fresh and fresh.confirmed >= view.replicas:
        return FINE
    if fresh is None or fresh.ready >= view.replicas:
        return waiting(Reason.ROLLING_OUT, f"{view.confirmed} of {view.replicas} pods confirm it")
    return fresh.trouble


def serves_well(view: View) -> bool:
    """Whether all pods that answer are of the revision that is asked for."""
    fresh = view.fresh
    if fresh is None or fresh.confirmed < fresh.ready:
        return False
    return bool(fresh.confirmed) or not view.replicas


def settling(view: View, now: datetime) -> timedelta | None:
    """What is left of the time that the old pods stay after a switch."""
    if view.serving != view.part or len(view.sides) < 2 or not view.history.switched_at:
        return None
    left = SETTLE - (now - moment(view.history.switched_at))
    return left if left > timedelta() else None


def old_sides(view: View) -> Mapping[str, int]:
    """The pods of all other parts, as they are."""
    return {part: side.wanted for part, side in view.sides.items() if part != view.part}


def sooner(left: timedelta | None, outcome: Finding) -> timedelta | None:
    """When to come back."""
    if left:
        return min(left, POLL)
    return None if outcome.holds or outcome.stalled else POLL
