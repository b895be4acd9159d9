"""Which pods hand over which share of their requests, and to whom."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailhold_api.handover import Handover
from tailhold_operator.observe import Pod, Report
from tailhold_operator.sides import answers

PATIENCE_MILLISECONDS = 1000
NOTHING = Handover()


@dataclass(frozen=True)
class Handing:
    """Tell a running pod to hand over so much."""

    pod: Pod
    handover: Handover


def handover_to(candidates: Iterable[Pod], revision: str, weight: int) -> Handover:
    """What the pods that serve are told."""
    addresses = tuple(pod.ip for pod in candidates if pod.ip)
    if not weight or not addresses:
        return NOTHING
    return Handover(
        weight_percent=weight,
        revision=revision,
        candidates=addresses,
        patience_milliseconds=PATIENCE_MILLISECONDS,
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
    return bool(known.weight_percent) or (pod.pod_part == serving and bool(wanted.weight_percent))


def handed_over(pods: Iterable[Pod], serving: str | None, reports: Mapping[str, Report]) -> int:
    """Percent of the requests that the pods that serve say they hand over. The Service shares them out evenly."""
    front = [pod for pod in pods if pod.pod_part == serving and answers(pod)]
    known = (report.handover for pod in front if (report := reports.get(pod.name)))
    weights = [each.weight_percent for each in known if each]
    return round(sum(weights) / len(front)) if front else 0
