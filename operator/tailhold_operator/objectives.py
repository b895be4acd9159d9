"""Which pods have to be told what to count."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailhold_api.slo import Objectives
from tailhold_operator.observe import Pod, Report
from tailhold_operator.sides import answers


@dataclass(frozen=True)
class Telling:
    """Have a running pod count these, and nothing else."""

    pod: Pod
    objectives: Objectives


def tellings(pods: tuple[Pod, ...], reports: Mapping[str, Report], objectives: Objectives) -> tuple[Telling, ...]:
    """Pods that answer questions and count something else. A server that knows no objectives is let be."""
    told = ((pod, reports.get(pod.name)) for pod in pods if answers(pod))
    return tuple(
        Telling(pod, objectives)
        for pod, report in told
        if report and report.objectives is not None and report.objectives != objectives
    )
