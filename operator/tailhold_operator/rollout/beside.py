"""A candidate beside the revision that serves: it comes up, is asked questions, gets traffic by steps, takes over."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.rollout import RolloutStrategy
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.judge.verdict import Answer, Verdict
from tailhold_operator.rollout import commands, judging
from tailhold_operator.rollout.room import (
    given_up_on,
    is_settled,
    kept,
    may_drain,
    started,
    staying,
    watched,
)
from tailhold_operator.rollout.turning import give_up, switch
from tailhold_operator.rollout.view import REPEAT, Step, View, moment
from tailhold_operator.rollout.weights import given, needed, step_of
from tailhold_operator.trial import Phase, Trial


def advance(view: View, now: datetime) -> Step:
    """One step of a judged rollout; the first clause that fits holds."""
    trial = _trial(view, now)
    if trial is None:
        return _refused(view)
    view = replace(view, history=watched(view, now).on_trial(trial))
    if view.replicas == 0:
        return _turned(view, trial, now)
    if commands.is_told(view, "abort"):
        view = replace(view, history=commands.done(view, "abort"))
        return give_up(view, stuck(Reason.ABORTED, "taken back by hand"), now)
    if trial.phase is not Phase.STARTING and view.fresh and view.fresh.broken:
        return give_up(view, view.fresh.broken, now)
    if commands.is_told(view, "promote") and trial.phase is not Phase.PROMOTING:
        view = replace(view, history=commands.done(view, "promote"))
        return _promoting(view, trial.entered(Phase.PROMOTING, stamp(now), by_hand=True), now)
    if _takes_over(view):
        return _turned(view, trial, now, "the revision before it answers nothing")
    return _PHASES[trial.phase](view, trial, now)


def _trial(view: View, now: datetime) -> Trial | None:
    """The one that is under way, or a new one; None where there would be no way back."""
    trial = view.history.trial
    if trial and trial.began and moment(trial.began) <= now:
        return trial
    if trial:  # A clock that went back: what was counted belongs to no time any more.
        return trial.model_copy(update={"began": stamp(now), "counted": stamp(now) if trial.counted else ""})
    if view.lacks and not view.fresh:
        return None
    return Trial(revision=view.target.name, began=stamp(now), strategy=RolloutStrategy.SURGE)


def _refused(view: View) -> Step:
    serving = view.serving or ""
    told = f"nothing is started, since it could not be taken back: {view.lacks}"
    return Step(serving, {serving: view.replicas}, view.history, stuck(Reason.NO_WAY_BACK, told))


def _is_beside(view: View) -> bool:
    """Whether something proven answers beside the candidate and is to go on doing so."""
    stable = view.stable
    proven = view.history.served(view.serving or "") is not None
    stays = view.rules.strategy is not RolloutStrategy.DRAIN_FIRST
    return bool(proven and stays and stable and stable.ready and stable.wanted)


def _takes_over(view: View) -> bool:
    """Whether what serves broke down, so that any pod of the candidate is better than none."""
    stable = view.stable
    was_drained = bool(view.history.drained_at) and (stable is None or not stable.wanted)
    return not was_drained and view.confirmed > 0 and not (stable and stable.ready)


def _turned(view: View, trial: Trial, now: datetime, why: str = "") -> Step:
    """The Service turns to a candidate that has not passed: it is judged alone, and can be taken back."""
    drained = view.rules.strategy is RolloutStrategy.DRAIN_FIRST or bool(view.history.drained_at)
    strategy = RolloutStrategy.DRAIN_FIRST if drained else RolloutStrategy.SURGE
    proving = trial.entered(Phase.PROVING, stamp(now), weight=0, strategy=strategy, why=why or trial.why)
    return switch(replace(view, history=view.history.on_trial(proving)), now)


def _starting(view: View, trial: Trial, now: datetime) -> Step:
    beside = _is_beside(view)
    count = needed(view.replicas, step_of(view, 0).weight_percent) if beside else view.replicas
    if _are_up(view, count, now):
        probing = trial.entered(Phase.PROBING, stamp(now))
        return _probing(replace(view, history=view.history.on_trial(probing)), probing, now)
    finding = given_up_on(view, now)
    if finding:
        return give_up(view, finding, now)
    step = started(view, count, _kept_for_one(view, now) if beside else kept(view, now), now)
    told = _strategy(view, trial, bool(step.history.drained_at))
    return replace(step, history=step.history.on_trial(told))


def _strategy(view: View, trial: Trial, drained: bool) -> Trial:
    """Which way it goes, and why."""
    if view.rules.strategy is RolloutStrategy.DRAIN_FIRST:
        return trial.model_copy(update={"strategy": RolloutStrategy.DRAIN_FIRST, "why": "`rollout.strategy` says so"})
    if drained and trial.strategy != RolloutStrategy.DRAIN_FIRST:
        words = view.fresh.trouble.message[:400] if view.fresh else ""
        return trial.model_copy(update={"strategy": RolloutStrategy.DRAIN_FIRST, "why": f"no room beside: {words}"})
    return trial


def _kept_for_one(view: View, now: datetime) -> int:
    """Old pods make room for one candidate pod, where there is none at all: it is enough to be compared."""
    fresh = view.fresh
    housed = fresh.pods - fresh.homeless if fresh else 0
    if not fresh or not fresh.homeless or housed or not may_drain(view) or not is_settled(view, now):
        return staying(view)
    return max(0, staying(view) - 1)


def _are_up(view: View, count: int, now: datetime) -> bool:
    """Whether the pods are there that can be: the others find no room."""
    fresh = view.fresh
    if fresh is None or not fresh.confirmed:
        return False
    return fresh.confirmed >= count or (
        _is_beside(view) and fresh.confirmed + fresh.homeless >= count and is_settled(view, now)
    )


def _probing(view: View, trial: Trial, now: datetime) -> Step:
    told = trial.probe
    failed = judging.probed(view, told) if told else None
    if failed:
        return give_up(view, failed, now)
    if told or not view.rules.probe.requests:
        if not _is_beside(view):
            return _turned(view, trial, now)
        stepping = trial.entered(Phase.STEPPING, stamp(now), step=0)
        return _stepping(replace(view, history=view.history.on_trial(stepping)), stepping, now)
    if _is_late(view, trial, now):
        return give_up(view, stuck(Reason.PROBE_FAILED, "no pod of it answered the probe in time"), now)
    outcome = waiting(
        Reason.PROBING, f"a pod of revision {trial.revision} is asked {view.rules.probe.requests} questions"
    )
    return _running(view, trial, outcome, probes=view.confirmed > 0)


def _stepping(view: View, trial: Trial, now: datetime) -> Step:
    step = step_of(view, trial.step)
    if not trial.counted:
        return _growing(view, trial, now)
    trial = trial.model_copy(update={"weight": given(view, step.weight_percent)})
    stable = view.history.served(view.serving or "")
    found = judging.verdict(view, trial, step, stable.name if stable else None, now)
    if found.answer is Answer.FAIL:
        return replace(give_up(view, judging.broken(found), now), verdict=found)
    if found.answer is Answer.PASS:
        return _passed(view, trial, found, now)
    if judging.is_over(trial, step, now):
        finding = judging.unknown(view, found, step)
        if finding:
            return replace(give_up(view, finding, now), verdict=found)
    outcome = judging.under_way(view, trial, step, found, now)
    return _running(view, trial, outcome, verdict=found)


def _growing(view: View, trial: Trial, now: datetime) -> Step:
    """The step's pods come up; until then the weight of the step before stays."""
    step = step_of(view, trial.step)
    if _are_up(view, needed(view.replicas, step.weight_percent), now):
        weight = given(view, step.weight_percent)
        trial = trial.model_copy(update={"counted": stamp(now), "weight": weight})
        where = f"step {trial.step + 1} of {len(view.rules.steps)} begins"
    elif _is_late(view, trial, now):
        told = view.fresh.trouble.message if view.fresh else "its Deployment is gone"
        return give_up(view, stuck(Reason.DEADLINE_EXCEEDED, f"its pods for the next step do not come up: {told}"), now)
    else:
        trial = trial.model_copy(update={"weight": min(trial.weight, given(view, trial.weight))})
        where = f"{view.confirmed} pods of revision {trial.revision} are up for step {trial.step + 1}"
    return _running(view, trial, waiting(Reason.JUDGING, where))


def _passed(view: View, trial: Trial, found: Verdict, now: datetime) -> Step:
    told = (*trial.passed, judging.passed(found, trial.weight, now))
    last = trial.step + 1 >= len(view.rules.steps)
    phase = Phase.PROMOTING if last else Phase.STEPPING
    after = trial.entered(phase, stamp(now), step=trial.step + (not last), passed=told)
    if last:
        after = after.model_copy(update={"counted": stamp(now)})
    view = replace(view, history=view.history.on_trial(after))
    return replace((_promoting if last else _stepping)(view, after, now), verdict=found)


def _promoting(view: View, trial: Trial, now: datetime) -> Step:
    """The rest of its pods come up, old ones make room where there is none beside them, and the Service turns."""
    view = replace(view, history=view.history.on_trial(trial))
    if view.fresh and view.confirmed >= view.replicas:
        return switch(view, now)
    found = _still_judged(view, trial, now)
    if found and found.answer is Answer.FAIL:
        return replace(give_up(view, judging.broken(found), now), verdict=found)
    if _is_late(view, trial, now):
        told = view.fresh.trouble.message if view.fresh else "its Deployment is gone"
        return give_up(view, stuck(Reason.DEADLINE_EXCEEDED, f"its pods do not come up: {told}"), now)
    stays = _kept_while_promoted(view, now)
    if view.confirmed and not stays:
        return switch(view, now)  # The last old pod has to make room: it goes once the Service has turned.
    trial = trial.model_copy(update={"weight": _promoted_weight(view, trial)})
    step = started(replace(view, history=view.history.on_trial(trial)), view.replicas, stays, now)
    return replace(step, weight=trial.weight, wait=REPEAT)


def _still_judged(view: View, trial: Trial, now: datetime) -> Verdict | None:
    """A candidate that passed and turns bad while its other pods come up is taken back all the same."""
    stable = view.history.served(view.serving or "")
    if not trial.counted or trial.by_hand or stable is None:
        return None
    return judging.verdict(view, trial, step_of(view, trial.step), stable.name, now)


def _promoted_weight(view: View, trial: Trial) -> int:
    """What it passed with; more only as old pods go whose share it takes."""
    stable = view.stable
    gone = stable is not None and stable.wanted < view.replicas
    share = given(view, 99) if gone else 0
    return max(given(view, trial.weight), share)


def _kept_while_promoted(view: View, now: datetime) -> int:
    """As many old pods go as are more than what is asked for, or one where there is none to spare; and no further one
    before the room that it left serves."""
    fresh, stays = view.fresh, staying(view)
    homeless = fresh.homeless if fresh else 0
    loading = (fresh.pods - homeless - fresh.confirmed) if fresh else 0
    if not homeless or loading > 0 or not may_drain(view) or not is_settled(view, now):
        return stays
    surplus = stays + view.confirmed - view.replicas
    return max(0, stays - min(homeless, max(1, surplus)))


def _running(
    view: View,
    trial: Trial,
    outcome: Finding,
    *,
    probes: bool = False,
    verdict: Verdict | None = None,
) -> Step:
    """Both sides as they are, the weight said again."""
    serving = view.serving or ""
    weight = step_of(view, trial.step).weight_percent
    count = needed(view.replicas, weight) if _is_beside(view) else view.replicas
    replicas = {serving: staying(view), view.part: count}
    history = view.history.on_trial(trial)
    return Step(serving, replicas, history, outcome, REPEAT, trial.weight, probes, verdict=verdict)


def _is_late(view: View, trial: Trial, now: datetime) -> bool:
    return now - moment(trial.began) >= timedelta(seconds=view.rules.deadline_seconds)


_PHASES: Mapping[Phase, Callable[[View, Trial, datetime], Step]] = {
    Phase.STARTING: _starting,
    Phase.PROBING: _probing,
    Phase.STEPPING: _stepping,
    Phase.PROVING: _starting,  # The Service was not turned, or turned back.
    Phase.PROMOTING: _promoting,
}
