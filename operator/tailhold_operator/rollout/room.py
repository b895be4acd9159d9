"""Room for a candidate's pods: beside those that serve, or in their place."""

from dataclasses import replace
from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.rollout import RolloutStrategy
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.history import History
from tailhold_operator.rollout.view import DRAIN_STEP, PATIENCE, POLL, Step, View, moment


def make_room(view: View, now: datetime) -> Step:
    """Start all of the candidate's pods, beside the old ones or in their place."""
    view = replace(view, history=watched(view, now))
    return started(view, view.replicas, kept(view, now), now)


def started(view: View, count: int, staying: int, now: datetime) -> Step:
    """So many candidate pods, and so many old ones that stay."""
    serving = view.serving or ""
    drained = view.stable is not None and staying < min(view.stable.wanted, view.replicas)
    history = view.history.model_copy(update={"drained_at": stamp(now)}) if drained else view.history
    replicas = {serving: staying}
    first_out = view.rules.strategy is RolloutStrategy.DRAIN_FIRST and view.stable and view.stable.pods
    if view.fresh or not first_out:
        replicas[view.part] = count
    return Step(serving, replicas, history, _under_way(view, history, count, staying), POLL)


def given_up_on(view: View, now: datetime) -> Finding | None:
    """Whether a candidate that does not come up has to be given up."""
    fresh = view.fresh
    if fresh is None:
        return None
    if now - fresh.created >= timedelta(seconds=view.rules.deadline_seconds):
        message = f"not ready within {view.rules.deadline_seconds} s: {fresh.trouble.message}"
        return stuck(Reason.DEADLINE_EXCEEDED, message)
    if not view.history.drained_at:
        return None  # Nobody suffers while it is tried: a volume may yet be filled.
    if fresh.trouble.stalled:
        return fresh.trouble
    emptied = not view.stable or view.stable.pods == 0
    if emptied and fresh.homeless and now - moment(view.history.drained_at) >= PATIENCE:
        return stuck(fresh.trouble.reason, f"still no room with the old pods gone: {fresh.trouble.message}")
    return None


def watched(view: View, now: datetime) -> History:
    """Remember when room last came free: the scheduler needs a moment to give it to the candidate."""
    known = view.history.freed_at
    if not view.leaving or (known and now - moment(known) < POLL):
        return view.history
    return view.history.model_copy(update={"freed_at": stamp(now)})


def kept(view: View, now: datetime) -> int:
    """How many old pods stay while the candidate is tried. For one that is hopeless, none has to go."""
    if view.fresh and view.fresh.trouble.stalled and not view.history.drained_at:
        return view.replicas
    if view.rules.strategy is RolloutStrategy.DRAIN_FIRST:
        return 0
    if view.stable is None or not may_drain(view):
        return view.replicas
    homeless = view.fresh.homeless if view.fresh else 0
    return max(0, staying(view) - homeless) if homeless and is_settled(view, now) else staying(view)


def may_drain(view: View) -> bool:
    """Whether old pods may have to go for the candidate's: `Surge` has them stay as long as they answer."""
    return view.rules.strategy is not RolloutStrategy.SURGE or not (view.stable and view.stable.ready)


def staying(view: View) -> int:
    """The old pods as they are, where room was made before, or else all that are asked for."""
    stable = view.stable
    return min(stable.wanted, view.replicas) if stable and view.history.drained_at else view.replicas


def is_settled(view: View, now: datetime) -> bool:
    """Whether all room that comes free has come free, and was there long enough to be taken."""
    stable = view.stable
    return not (view.leaving or _just_freed(view.history, now) or (stable and stable.pods > stable.wanted))


def _just_freed(history: History, now: datetime) -> bool:
    moments = (moment(text) for text in (history.drained_at, history.freed_at) if text)
    return any(now - each < DRAIN_STEP for each in moments)


def _under_way(view: View, history: History, count: int, staying: int) -> Finding:
    fresh = view.fresh
    if fresh and fresh.trouble.stalled:
        return fresh.trouble
    told = f"{fresh.confirmed if fresh else 0} of {count} new pods are ready, {staying} old ones stay"
    trouble = f"; {fresh.trouble.message}" if fresh and fresh.trouble.message else ""
    reason = Reason.DRAINING if history.drained_at else Reason.ROLLING_OUT
    return waiting(reason, told + trouble)
