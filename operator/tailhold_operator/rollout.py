"""How a new revision's pods replace those that serve. Every state has a next step, and each says why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.parts import SHORT
from tailhold_api.spec import Rollout, RolloutStrategy
from tailhold_api.status import RevisionStatus
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import FINE, Finding, stuck, waiting
from tailhold_operator.history import Failure, History

SETTLE = timedelta(seconds=10)
"""How long the old pods stay once the Service has turned: every node has to learn of it first."""
DRAIN_STEP = timedelta(seconds=15)
"""How long room that came free is given to be taken before more is made."""
PATIENCE = timedelta(seconds=120)
"""How long a candidate for which everything was drained may go on waiting for room."""
POLL = timedelta(seconds=5)


@dataclass(frozen=True)
class Side:
    """The pods of one pod part."""

    wanted: int
    """Replicas that its Deployment asks for."""
    pods: int
    """Pods that exist, those that are leaving among them."""
    ready: int
    confirmed: int
    """Pods that are ready and say that they run both parts of the revision that is asked for."""
    homeless: int
    """Pods for which the nodes that fit have no room."""
    created: datetime
    trouble: Finding


@dataclass(frozen=True)
class View:
    """All that a step is decided from."""

    target: RevisionStatus
    """What the spec asks for."""
    serving: str | None
    """The pod part that the Service sends questions to."""
    sides: Mapping[str, Side]
    """By pod part; one without a Deployment is missing."""
    history: History
    replicas: int
    rules: Rollout
    leaving: int = 0
    """Pods of any part that hold their room no longer than it takes them to stop."""

    @property
    def part(self) -> str:
        """The pod part that is asked for."""
        return self.target.pod_digest[:SHORT]

    @property
    def fresh(self) -> Side | None:
        """Its pods."""
        return self.sides.get(self.part)

    @property
    def stable(self) -> Side | None:
        """The pods that serve."""
        return self.sides.get(self.serving or "")


@dataclass(frozen=True)
class Step:
    """What has to be next. A Deployment that is not named is deleted."""

    serving: str
    replicas: Mapping[str, int]
    history: History
    outcome: Finding
    """Whether the revision that is asked for is rolled out."""
    wait: timedelta | None = None


def advance(view: View, now: datetime) -> Step:
    """One step of a rollout; the first clause that fits holds."""
    view = replace(view, history=view.history.aimed_at(view.target.name))
    if view.serving in (None, view.part):
        return _settle(view, now)
    if view.history.served(view.serving or "") is None and not (view.stable and view.stable.ready):
        # What never served has nothing to lose, and must not stand in the way. What answers has, even where the
        # history that would say so was lost.
        return _settle(view, now)
    failure = view.history.failed(view.target.name)
    if failure:
        return _hold(view, failure)
    return _replace(replace(view, history=view.history.tried(view.target, stamp(now))), now)


def stand_still(serving: str | None, replicas: int, history: History, now: datetime) -> Step:
    """Keep what serves while what is asked for cannot be made yet."""
    alone = {serving: replicas} if serving else {}
    return Step(serving or "", alone, history.tried(None, stamp(now)), FINE)


def _settle(view: View, now: datetime) -> Step:
    """The Service sends to the pods that are asked for: wait for them, then let go of all others."""
    history = _tried(view, now)
    failure = history.failed(view.target.name)
    if not failure and _serves_well(view):
        history = history.with_serving(view.target, view.rules.history, stamp(now))
    left = _settling(view, now)
    old = {part: side.wanted for part, side in view.sides.items() if part != view.part} if left else {}
    outcome = _settled(view, failure)
    return Step(view.part, {view.part: view.replicas, **old}, history, outcome, _sooner(left, outcome))


def _tried(view: View, now: datetime) -> History:
    """Whatever else was tried ends; what serves is itself a trial until it has answered once."""
    before = view.history.candidate
    if view.history.served(view.part) is None:
        return view.history.tried(view.target, stamp(now))
    if before and before.pod_digest != view.target.pod_digest:
        return view.history.tried(None, stamp(now))
    return view.history


def _serves_well(view: View) -> bool:
    fresh = view.fresh
    if fresh is None or fresh.confirmed < fresh.ready:
        return False
    return bool(fresh.confirmed) or not view.replicas


def _settled(view: View, failure: Failure | None) -> Finding:
    if failure:
        return _given_up(failure)
    fresh = view.fresh
    if fresh and fresh.confirmed >= view.replicas:
        return FINE
    if fresh is None or fresh.ready >= view.replicas:
        return waiting(Reason.ROLLING_OUT, f"{fresh.confirmed if fresh else 0} of {view.replicas} pods confirm it")
    return fresh.trouble


def _settling(view: View, now: datetime) -> timedelta | None:
    """What is left of the time that the old pods stay after a switch."""
    if view.serving != view.part or len(view.sides) < 2 or not view.history.switched_at:
        return None
    left = SETTLE - (now - _moment(view.history.switched_at))
    return left if left > timedelta() else None


def _hold(view: View, failure: Failure) -> Step:
    """The revision was given up: what served before serves on, with all its pods."""
    serving = view.serving or ""
    return Step(serving, {serving: view.replicas}, view.history, _given_up(failure))


def _given_up(failure: Failure) -> Finding:
    return stuck(Reason(failure.reason), failure.message)


def _replace(view: View, now: datetime) -> Step:
    if view.fresh and view.fresh.confirmed >= view.replicas:
        return _switch(view, now)
    verdict = _verdict(view, now)
    if verdict:
        failure = Failure(name=view.target.name, reason=verdict.reason.value, message=verdict.message, at=stamp(now))
        return _hold(replace(view, history=view.history.with_failure(failure)), failure)
    return _make_room(view, now)


def _verdict(view: View, now: datetime) -> Finding | None:
    """Whether the candidate has to be given up."""
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
    if emptied and fresh.homeless and now - _moment(view.history.drained_at) >= PATIENCE:
        return stuck(fresh.trouble.reason, f"still no room with the old pods gone: {fresh.trouble.message}")
    return None


def _switch(view: View, now: datetime) -> Step:
    serving = view.serving or ""
    old = {serving: view.stable.wanted} if view.stable else {}
    history = view.history.model_copy(update={"switched_at": stamp(now)})
    outcome = waiting(Reason.ROLLING_OUT, "the new pods are ready and take over")
    return Step(view.part, {**old, view.part: view.replicas}, history, outcome, SETTLE)


def _make_room(view: View, now: datetime) -> Step:
    """Start the candidate, beside the old pods or in their place."""
    view = replace(view, history=_watched(view, now))
    serving = view.serving or ""
    kept = _kept(view, now)
    drained = view.stable is not None and kept < min(view.stable.wanted, view.replicas)
    history = view.history.model_copy(update={"drained_at": stamp(now)}) if drained else view.history
    replicas = {serving: kept}
    first_out = view.rules.strategy is RolloutStrategy.DRAIN_FIRST and view.stable and view.stable.pods
    if view.fresh or not first_out:
        replicas[view.part] = view.replicas
    return Step(serving, replicas, history, _under_way(view, history, kept), POLL)


def _watched(view: View, now: datetime) -> History:
    """Remember when room last came free: the scheduler needs a moment to give it to the candidate."""
    known = view.history.freed_at
    if not view.leaving or (known and now - _moment(known) < POLL):
        return view.history
    return view.history.model_copy(update={"freed_at": stamp(now)})


def _kept(view: View, now: datetime) -> int:
    """How many old pods stay while the candidate is tried. For one that is hopeless, none has to go."""
    if view.fresh and view.fresh.trouble.stalled and not view.history.drained_at:
        return view.replicas
    if view.rules.strategy is RolloutStrategy.DRAIN_FIRST:
        return 0
    stable, homeless = view.stable, view.fresh.homeless if view.fresh else 0
    if stable is None:
        return view.replicas
    if view.rules.strategy is RolloutStrategy.SURGE and stable.ready:
        return view.replicas
    wanted = min(stable.wanted, view.replicas) if view.history.drained_at else view.replicas
    if not homeless or view.leaving or _just_freed(view.history, now) or stable.pods > stable.wanted:
        return wanted
    return max(0, wanted - homeless)


def _just_freed(history: History, now: datetime) -> bool:
    moments = (_moment(text) for text in (history.drained_at, history.freed_at) if text)
    return any(now - moment < DRAIN_STEP for moment in moments)


def _under_way(view: View, history: History, kept: int) -> Finding:
    fresh = view.fresh
    if fresh and fresh.trouble.stalled:
        return fresh.trouble
    told = f"{fresh.confirmed if fresh else 0} of {view.replicas} new pods are ready, {kept} old ones stay"
    trouble = f"; {fresh.trouble.message}" if fresh and fresh.trouble.message else ""
    reason = Reason.DRAINING if history.drained_at else Reason.ROLLING_OUT
    return waiting(reason, told + trouble)


def _sooner(left: timedelta | None, outcome: Finding) -> timedelta | None:
    if left:
        return min(left, POLL)
    return None if outcome.holds or outcome.stalled else POLL


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
