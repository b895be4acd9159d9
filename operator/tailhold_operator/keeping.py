"""Whether the promises are kept: the condition, and the figures beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import log

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.slo import Objective, Slo
from tailhold_api.status import ObjectiveStatus, PeriodStatus, SloStatus, Status
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import Finding
from tailhold_operator.judge.clustering import design_effect
from tailhold_operator.judge.comparison import LEAST_CELLS
from tailhold_operator.judge.counts import Side, Window, counted
from tailhold_operator.judge.evidence import above
from tailhold_operator.judge.watched import Watched

HOUR, LATELY = timedelta(hours=1), timedelta(minutes=5)
SURE = log(20)
"""What the evidence has to reach before a promise is called broken: wrong in at most 1 of 20 hours that keep it."""
_ENOUGH = 3.0
"""So many bad requests are allowed among as many as it takes to speak of a promise: with none among 299, 99 % is shown
with a certainty of 95 %."""
_UNSEEN = 5.0
"""So many requests count as one while there are too few to see how slow ones cluster."""
_LONGEST = 1000
_MOST_PERCENT = 1e6


@dataclass(frozen=True)
class Kept:
    """What is said about the promises."""

    finding: Finding
    status: SloStatus

    @property
    def answer(self) -> tuple[str, str]:
        """Status and reason: what people are told of when it changes."""
        return (self.finding.status, self.finding.reason.value)


def said_of(status: Status) -> Kept | None:
    """What was said last; None where nothing was, or nothing that is understood."""
    known = next((each for each in status.conditions if each.type == ConditionType.SLO_MET), None)
    if known is None or status.slo is None or known.reason not in set(Reason):
        return None
    unknown = known.status == "Unknown"
    return Kept(Finding(known.status == "True", Reason(known.reason), known.message, unknown=unknown), status.slo)


@dataclass(frozen=True)
class _Measured:
    """One objective."""

    objective: Objective
    hour: Side
    lately: Side
    breaks: bool
    """Shown to be beyond it over the hour."""

    @property
    def enough(self) -> float:
        """Requests."""
        return _ENOUGH / self.objective.allowed

    @property
    def is_known(self) -> bool:
        """Whether there were enough requests to speak of it."""
        return self.breaks or self.hour.total >= self.enough

    def is_broken(self, before: bool) -> bool:
        """Broken while it goes on. What was broken is so until the hour is within the promise, or five minutes with
        enough requests are by far: a pipeline near its limit does not go to and fro."""
        if not before:
            return self.breaks and self.lately.share > self.objective.allowed
        settled = self.lately.total >= self.enough / 2 and self.lately.share <= self.objective.allowed / 2
        return self.hour.share > self.objective.allowed and not settled


def kept(before: Kept | None, slo: Slo, watched: Watched, now: datetime, *, sampled: bool) -> Kept | None:
    """None where nothing is promised.

    Figures move with each request: they are told anew at the seldom looks, and when the answer is another one.
    """
    if not slo.objectives:
        return None
    measured = [_measure(each, watched, now) for each in slo.objectives]
    were = {each.name for each in before.status.objectives if each.broken} if before else set()
    broken = [each for each in measured if each.is_broken(each.objective.name in were)]
    found = Kept(_finding(measured, broken, watched, now), _status(measured, broken, slo, watched))
    return found if before is None or _is_news(before, found, sampled) else before


def _is_news(before: Kept, found: Kept, sampled: bool) -> bool:
    if before.answer != found.answer or _promises(before.status) != _promises(found.status):
        return True
    if before.status.source != found.status.source:
        return True
    return sampled and before.status.objectives != found.status.objectives


def _promises(status: SloStatus) -> list[tuple[str, float, bool]]:
    return [(each.name, each.percent, each.broken) for each in status.objectives]


def _measure(objective: Objective, watched: Watched, now: datetime) -> _Measured:
    windows = _windows(watched, objective.name, now - HOUR)
    counts = counted(windows)
    effect = design_effect(counts.bad, counts.total)
    effect = effect if len(counts.total) >= LEAST_CELLS else max(effect, _UNSEEN)
    beyond = above(_sum(windows).divided(effect), objective.allowed) >= SURE
    lately = _windows(watched, objective.name, now - LATELY)
    return _Measured(objective, _sum(windows), _sum(lately), beyond)


def _windows(watched: Watched, objective: str, since: datetime) -> list[Window]:
    """Of all revisions: whoever answered, a client got the answer."""
    looks = (look for look in watched.looks if look.at > since)
    return [found[objective] for look in looks for found in look.windows.values() if objective in found]


def _sum(windows: Iterable[Window]) -> Side:
    every = list(windows)
    return Side(sum(each.bad for each in every), sum(each.total for each in every))


def _finding(measured: Sequence[_Measured], broken: Sequence[_Measured], watched: Watched, now: datetime) -> Finding:
    if watched.is_blind(now):
        since = f"since {stamp(watched.read_at)}" if watched.read_at else "yet"
        words = f"not all pods' counters could be read {since}: {watched.trouble or 'no pod is ready'}"
        return Finding(False, Reason.METRICS_UNAVAILABLE, words[:_LONGEST], unknown=True)
    if broken:
        return Finding(False, Reason.OBJECTIVE_BROKEN, "; ".join(map(_sentence, broken)))
    few = [each for each in measured if not each.is_known]
    if few:
        told = "; ".join(f"{each.objective.name}: {each.hour.total:.0f} of {each.enough:.0f}" for each in few)
        return Finding(False, Reason.TOO_FEW_REQUESTS, f"requests of the last hour: {told}", unknown=True)
    return Finding(True, Reason.OBJECTIVES_MET, "; ".join(map(_sentence, measured)))


def _sentence(each: _Measured) -> str:
    return (
        f"{each.objective.name}: {each.hour.bad:.0f} of {each.hour.total:.0f} requests of the last hour broke it"
        f" ({_percent(each.hour.share):g} %, {_percent(each.objective.allowed):g} % are allowed)"
    )


def _percent(share: float) -> float:
    """To three places that count."""
    return float(f"{share * 100:.3g}")


def _status(measured: Sequence[_Measured], broken: Sequence[_Measured], slo: Slo, watched: Watched) -> SloStatus:
    asks = slo.source is not None and slo.source.prometheus is not None
    return SloStatus(
        source="Prometheus" if asks else "Pods",
        read_at=stamp(watched.read_at) if watched.read_at else "",
        objectives=tuple(_objective(each, each in broken) for each in measured),
    )


def _objective(each: _Measured, broken: bool) -> ObjectiveStatus:
    return ObjectiveStatus(
        name=each.objective.name,
        percent=each.objective.percent,
        broken=broken,
        hour=_period(each.hour),
        five_minutes=_period(each.lately),
        budget_burned_percent=min(_percent(each.hour.share / each.objective.allowed), _MOST_PERCENT),
    )


def _period(side: Side) -> PeriodStatus:
    return PeriodStatus(requests=round(side.total), bad=round(side.bad), bad_percent=_percent(side.share))
