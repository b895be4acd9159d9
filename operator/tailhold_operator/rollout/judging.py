"""What the judge is asked about a step, and what is made of its answer."""

from datetime import datetime, timedelta

from tailhold_api.conditions import Reason
from tailhold_api.rollout import OnUnknown, WeightStep
from tailhold_api.status import ProbeStatus
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.judge import watched
from tailhold_operator.judge.counts import Side
from tailhold_operator.judge.verdict import Answer, Verdict
from tailhold_operator.rollout.view import View, moment
from tailhold_operator.trial import Passed, Trial


def verdict(view: View, trial: Trial, step: WeightStep, stable: str | None, now: datetime) -> Verdict:
    """What is known of the candidate since the step began; `stable` is the revision beside it."""
    margin, steps = view.slo.margin_percent, len(view.rules.steps)
    asked = watched.Trial(
        candidate=trial.revision,
        stable=stable,
        since=moment(trial.counted),
        objectives=view.slo.objectives,
        error_share=view.slo.error_percent / 100,
        margin=None if margin is None else margin / 100,
        steps=steps,
        least_requests=step.min_requests,
    )
    return watched.judge_step(view.watched, asked, now)


def probed(view: View, told: ProbeStatus) -> Finding | None:
    """Why a candidate that was asked questions of ours gets no others."""
    least = view.rules.probe.min_recall_percent
    if told.failed or not told.requests:
        words = f": {told.message}" if told.message else ""
        return stuck(Reason.PROBE_FAILED, f"{told.failed} of {told.requests} questions had no whole answer{words}")
    if told.recall_percent < least:
        told_of = f"{told.recall_percent:g} % of what an exact search finds, less than `rollout.probe.minRecallPercent`"
        return stuck(Reason.PROBE_FAILED, f"its index finds {told_of}, {least:g}")
    return None


def passed(found: Verdict, weight: int, now: datetime) -> Passed:
    """A verdict as it is remembered."""
    told = found.findings[found.objective]
    return Passed(
        weight_percent=weight,
        why=found.why.value,
        objective=found.objective,
        requests=round(told.candidate.total),
        bad=round(told.candidate.bad),
        stable_requests=round(told.stable.total),
        stable_bad=round(told.stable.bad),
        at=stamp(now),
    )


def is_over(trial: Trial, step: WeightStep, now: datetime) -> bool:
    """Whether the time for a verdict has passed."""
    return bool(trial.counted) and now - moment(trial.counted) >= timedelta(seconds=step.max_seconds)


def broken(found: Verdict) -> Finding:
    """Why a candidate that failed is taken back, with the numbers."""
    told = found.findings[found.objective]
    beside = f", and {_share(told.stable)} of the revision that serves" if told.stable.total else ""
    words = f"{_share(told.candidate)} of the candidate's requests broke {found.objective}{beside}"
    return stuck(Reason.SLO_BROKEN, f"{found.why.value}: {words}")


def unknown(view: View, found: Verdict, step: WeightStep) -> Finding | None:
    """Why a candidate without a verdict in time is taken back; None where it may go on waiting."""
    if view.rules.on_unknown is OnUnknown.HOLD:
        return None
    return stuck(Reason.NO_VERDICT, f"no verdict after {step.max_seconds} s: {found.why.value}")


def under_way(view: View, trial: Trial, step: WeightStep, found: Verdict, now: datetime) -> Finding:
    """What is waited for. Without figures: they move all the time, and stand in `status.rollout`."""
    where = f"{trial.weight} % of the requests, step {trial.step + 1} of {len(view.rules.steps)}"
    if is_over(trial, step, now) and found.answer in (Answer.UNDECIDED, Answer.BLIND):
        told = f"no verdict after {step.max_seconds} s ({found.why.value}): it stays at {where}"
        return waiting(Reason.NO_VERDICT, told)
    return waiting(Reason.JUDGING, f"revision {trial.revision} has {where}; `status.rollout` has the verdict so far")


def _share(side: Side) -> str:
    return f"{round(side.bad)} of {round(side.total)} ({100 * side.share:.2g} %)"
