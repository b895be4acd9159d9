"""Which pods hand over which share of their requests, and to whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailhold_api.handover import MOST_CANDIDATES, Candidate, Handover
from tailhold_api.slo import Slo
from tailhold_operator.observe import NOTHING, Pod, Report
from tailhold_operator.sides import answers

_PATIENCE_MILLISECONDS = (1000, 30000)


@dataclass(frozen=True)
class Handing:
    """Tell a running pod to hand over so much."""

    pod: Pod
    handover: Handover


def handover_to(pods: Iterable[Pod], revision: str, weight: int, slo: Slo) -> Handover:
    """What the pods that serve are told. A candidate may take twice the longest promise until it says something."""
    candidates = tuple(Candidate(pod=pod.name, ip=pod.ip, server_name=pod.server_name) for pod in pods if pod.ip)
    if not weight or not candidates:
        return NOTHING
    longest = 2 * max((each.threshold_milliseconds for each in slo.objectives), default=0)
    least, most = _PATIENCE_MILLISECONDS
    return Handover(
        weight_percent=weight,
        revision=revision,
        candidates=candidates[:MOST_CANDIDATES],
        patience_milliseconds=min(most, max(least, longest)),
    )


def handings(
    pods: Iterable[Pod], serving: str | None, reports: Mapping[str, Report], wanted: Handover
) -> tuple[Handing, ...]:
    """A weight is said at each look, since pods forget it; that there is none, only to those that know of one."""
    told = ((pod, reports.get(pod.name)) for pod in pods if pod.pod_part and answers(pod))
    return tuple(
        Handing(pod, wanted if pod.pod_part == serving else NOTHING)
        for pod, report in told
        if report and report.handover is not None and _has_to_hear(pod, report.handover, serving, wanted)
    )


def _has_to_hear(pod: Pod, known: Handover, serving: str | None, wanted: Handover) -> bool:
    return not known.is_over or (pod.pod_part == serving and not wanted.is_over)


def handed_over(pods: Iterable[Pod], serving: str | None, reports: Mapping[str, Report]) -> int:
    """Percent of the requests that the pods that serve say they hand over. The Service shares them out evenly."""
    front = [pod for pod in pods if pod.pod_part == serving and answers(pod)]
    known = (report.handover for pod in front if (report := reports.get(pod.name)))
    weights = [each.weight_percent for each in known if each]
    return round(sum(weights) / len(front)) if front else 0
