"""What the status says of a rollout: coarsely, so that it is not written at each look."""

from datetime import datetime, timedelta
from math import isfinite

from tailhold_api.parts import SHORT
from tailhold_api.status import RolloutStatus, SideStatus, VerdictStatus
from tailhold_operator.conditions import stamp
from tailhold_operator.decide import Decision
from tailhold_operator.handing import handed_over
from tailhold_operator.judge.counts import Side
from tailhold_operator.judge.verdict import Verdict
from tailhold_operator.observe import Seen, pods_of
from tailhold_operator.rollout.weights import step_at
from tailhold_operator.sides import answers, runs
from tailhold_operator.trial import IN_PLACE, Phase

_EVERY = timedelta(seconds=30)


def weight(seen: Seen, decision: Decision) -> int | None:
    """Percent of the requests that the candidate answers, by what the pods say; None where none is judged."""
    trial, target = decision.history.trial, decision.target
    if trial is None or target is None or decision.serving is None:
        return None
    pods = [pod for pod in pods_of(seen) if pod.pod_part == decision.serving and answers(pod)]
    if target.status.pod_digest[:SHORT] != decision.serving:
        return handed_over(pods, decision.serving, seen.reports)
    if trial.strategy != IN_PLACE:
        return 100
    taken = sum(1 for pod in pods if runs(seen.reports.get(pod.name), target.status))
    return round(100 * taken / len(pods)) if pods else 0


def rollout_status(before: RolloutStatus | None, decision: Decision, now: datetime) -> RolloutStatus | None:
    """None where no revision is judged."""
    trial, asked = decision.history.trial, decision.asked
    if trial is None or asked is None:
        return None
    steps = asked.spec.rollout.steps
    is_stepping = trial.phase is Phase.STEPPING and trial.strategy != IN_PLACE
    beside = decision.history.proven if trial.phase is not Phase.PROVING else None
    told = RolloutStatus(
        revision=trial.revision,
        stable=beside.name if beside else "",
        strategy=trial.strategy,
        strategy_why=trial.why[:500],
        phase=trial.phase.value,
        step=trial.step + 1 if is_stepping else 0,
        steps=len(steps) if trial.strategy != IN_PLACE else 0,
        wanted_percent=step_at(steps, trial.step).weight_percent if is_stepping and steps else 0,
        since=trial.counted or trial.began,
        probe=trial.probe,
    )
    return told.model_copy(update={"verdict": _verdict(before, told, decision.verdict, now)})


def _verdict(
    before: RolloutStatus | None, told: RolloutStatus, found: Verdict | None, now: datetime
) -> VerdictStatus | None:
    """What was said before, until it is another answer or half a minute has gone by."""
    if found is None:
        return None
    known = before.verdict if before and _place(before) == _place(told) else None
    if known and (known.answer, known.why) == (found.answer, found.why) and not _is_old(known, now):
        return known
    after = verdict_status(found, now)
    return known if known and known.model_copy(update={"at": after.at, "earliest": after.earliest}) == after else after


def _place(told: RolloutStatus) -> tuple[str, str, int, str]:
    return (told.revision, told.phase, told.step, told.since)


def _is_old(known: VerdictStatus, now: datetime) -> bool:
    at = datetime.fromisoformat(known.at.replace("Z", "+00:00"))
    return not timedelta() <= now - at < _EVERY


def verdict_status(found: Verdict, now: datetime) -> VerdictStatus:
    """A verdict in figures of two places."""
    finding = found.findings.get(found.objective)
    if finding is None:
        return VerdictStatus(answer=found.answer.value, why=found.why.value, at=stamp(now))
    left = finding.seconds_left
    return VerdictStatus(
        answer=found.answer.value,
        why=found.why.value,
        objective=found.objective,
        candidate=_side(finding.candidate),
        stable=_side(finding.stable) if finding.stable.total else None,
        needed=_coarse(finding.prospect.needed),
        earliest=_minute(now + timedelta(seconds=left)) if isfinite(left) and left < _YEAR else "",
        at=stamp(now),
    )


_YEAR = 365 * 86400.0


def _side(side: Side) -> SideStatus:
    return SideStatus(requests=round(side.total), bad=round(side.bad), bad_percent=float(f"{100 * side.share:.2g}"))


def _coarse(needed: int | None) -> int | None:
    """To two places that count."""
    return None if needed is None else int(float(f"{needed:.2g}"))


def _minute(moment: datetime) -> str:
    return stamp(moment.replace(second=0) + timedelta(minutes=1))
