"""A candidate on the pods that the Service sends to: it took over before it was found good, or it is new content of
the pods that serve."""

from dataclasses import replace
from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.parts import SHORT
from tailhold_api.rollout import RolloutStrategy, WeightStep
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import FINE, Finding, stuck, waiting
from tailhold_operator.judge.verdict import Answer, Verdict
from tailhold_operator.rollout import commands, judging
from tailhold_operator.rollout.turning import (
    given_up,
    go_back,
    old_sides,
    serves_well,
    settled,
    settling,
    sooner,
    with_failure,
)
from tailhold_operator.rollout.view import REPEAT, Step, View, moment
from tailhold_operator.rollout.weights import step_of
from tailhold_operator.trial import IN_PLACE, Phase, Trial


def advance(view: View, now: datetime) -> Step:
    """One step; the first clause that fits holds."""
    history = view.history.tried(view.target, stamp(now))
    trial = _trial(replace(view, history=history), now)
    view = replace(view, history=history.on_trial(trial))
    if commands.is_told(view, "abort"):
        view = replace(view, history=commands.done(view, "abort"))
        return _failed(view, stuck(Reason.ABORTED, "taken back by hand"), now)
    if commands.is_told(view, "promote"):
        trial = trial.entered(Phase.PROMOTING, stamp(now), by_hand=True)
        view = replace(view, history=commands.done(view, "promote").on_trial(trial))
    broken = _broken(view)
    if broken and trial.phase is not Phase.PROMOTING:
        return _failed(view, broken, now)
    if trial.phase is Phase.PROMOTING:
        return _promoted(view, now)
    if not view.replicas:
        return _stays(view, FINE, now)
    return _judged(view, trial, now) if trial.phase in (Phase.STEPPING, Phase.PROVING) else _prepared(view, trial, now)


def _is_content(view: View) -> bool:
    proven = view.history.proven
    return proven is not None and proven.pod_digest[:SHORT] == view.part


def _trial(view: View, now: datetime) -> Trial:
    trial = view.history.trial
    content = _is_content(view)
    if trial is None:
        strategy = IN_PLACE if content else RolloutStrategy.SURGE.value
        phase = Phase.STARTING if content else Phase.PROVING
        return Trial(revision=view.target.name, phase=phase, began=stamp(now), strategy=strategy)
    if moment(trial.began) > now if trial.began else True:  # A clock that went back.
        trial = trial.model_copy(update={"began": stamp(now), "counted": stamp(now) if trial.counted else ""})
    if not content and trial.phase not in (Phase.PROVING, Phase.PROMOTING):
        return trial.entered(Phase.PROVING, stamp(now), weight=0)  # The Service was turned by somebody.
    return trial


def _broken(view: View) -> Finding | None:
    """Whether its pods fail by their own doing. One of several that ends once is started again by kubelet."""
    fresh = view.fresh
    if fresh is None:
        return None
    if fresh.trouble.stalled and fresh.ready < view.replicas:
        return fresh.trouble
    return fresh.broken if not fresh.ready else None


def _failed(view: View, finding: Finding, now: datetime) -> Step:
    failed, failure = with_failure(view, finding, now)
    return go_back(failed, failure) or _stays(failed, given_up(failure), now)


def _prepared(view: View, trial: Trial, now: datetime) -> Step:
    """New content goes to one pod, which is asked questions of ours."""
    late = now - moment(trial.began) >= timedelta(seconds=view.rules.deadline_seconds)
    if late:
        return _failed(view, stuck(Reason.DEADLINE_EXCEEDED, "no pod has the new content in time"), now)
    if not view.confirmed:
        return replace(
            _stays(view, waiting(Reason.PUSHING_CONTENT, "a pod is given the new content"), now), to_one=True
        )
    told = trial.probe
    failed = judging.probed(view, told) if told else None
    if failed:
        return _failed(view, failed, now)
    if told or not view.rules.probe.requests:
        after = trial.entered(Phase.STEPPING, stamp(now))
        return _judged(replace(view, history=view.history.on_trial(after)), after, now)
    probing = trial if trial.phase is Phase.PROBING else trial.entered(Phase.PROBING, stamp(now))
    view = replace(view, history=view.history.on_trial(probing))
    outcome = waiting(Reason.PROBING, f"a pod with revision {trial.revision} is asked questions")
    return replace(_stays(view, outcome, now), probes=True, to_one=True)


def _judged(view: View, trial: Trial, now: datetime) -> Step:
    """Beside pods with the old content, or alone."""
    fresh = view.fresh
    beside = _is_content(view) and fresh is not None and fresh.ready > fresh.confirmed > 0
    phase = Phase.STEPPING if beside else Phase.PROVING
    if trial.phase is not phase:
        trial = trial.entered(phase, stamp(now))
    if not trial.counted and view.confirmed:
        trial = trial.model_copy(update={"counted": stamp(now)})
    view = replace(view, history=view.history.on_trial(trial))
    if not trial.counted:
        return _waits(view, trial, now)
    return _decided(view, trial, beside, now)


def _waits(view: View, trial: Trial, now: datetime) -> Step:
    if now - moment(trial.began) >= timedelta(seconds=view.rules.deadline_seconds):
        told = view.fresh.trouble.message if view.fresh else "its Deployment is gone"
        return _failed(view, stuck(Reason.DEADLINE_EXCEEDED, f"no pod of it answers: {told}"), now)
    outcome = settled(view, None)
    return _stays(view, outcome if not outcome.holds else waiting(Reason.JUDGING), now)


def _decided(view: View, trial: Trial, beside: bool, now: datetime) -> Step:
    step = step_of(view, len(view.rules.steps))
    proven = view.history.proven
    found = judging.verdict(view, trial, step, proven.name if beside and proven else None, now)
    if found.answer is Answer.FAIL:
        return replace(_failed(view, judging.broken(found), now), verdict=found)
    if found.answer is Answer.PASS:
        told = (*trial.passed, judging.passed(found, _share(view, beside), now))
        after = trial.entered(Phase.PROMOTING, stamp(now), passed=told)
        return replace(_promoted(replace(view, history=view.history.on_trial(after)), now), verdict=found)
    finding = judging.unknown(view, found, step) if judging.is_over(trial, step, now) else None
    if finding:
        return replace(_failed(view, finding, now), verdict=found)
    return replace(
        _stays(view, _under_way(view, trial, step, found, now), now), verdict=found, to_one=_is_content(view)
    )


def _share(view: View, beside: bool) -> int:
    fresh = view.fresh
    return round(100 * fresh.confirmed / fresh.ready) if fresh and beside else 100


def _under_way(view: View, trial: Trial, step: WeightStep, found: Verdict, now: datetime) -> Finding:
    beside = "beside the old content" if trial.phase is Phase.STEPPING else "alone, by the objectives"
    if judging.is_over(trial, step, now) and found.answer in (Answer.UNDECIDED, Answer.BLIND):
        return waiting(
            Reason.NO_VERDICT, f"no verdict after {step.max_seconds} s ({found.why.value}): it stays as it is"
        )
    return waiting(Reason.JUDGING, f"revision {trial.revision} is judged {beside}; `status.rollout` has it so far")


def _promoted(view: View, now: datetime) -> Step:
    """It serves for good once all pods that answer are of it."""
    if not serves_well(view):
        outcome = settled(view, None)
        return _stays(view, waiting(Reason.ROLLING_OUT) if outcome.holds else outcome, now)
    proven = replace(view, history=view.history.with_serving(view.target, view.rules.history, stamp(now)))
    return _stays(proven, settled(proven, None), now)


def _stays(view: View, outcome: Finding, now: datetime) -> Step:
    """The Service stays where it is; the old pods stay while a rollback may want them and nobody needs their room."""
    left = settling(view, now)
    trial = view.history.trial
    wanted = trial is not None and trial.phase is Phase.PROVING and not (view.fresh and view.fresh.homeless)
    old = {part: count for part, count in old_sides(view).items() if count} if left or wanted else {}
    wait = REPEAT if trial and not outcome.stalled else sooner(left, outcome)
    return Step(view.part, {view.part: view.replicas, **old}, view.history, outcome, wait)
