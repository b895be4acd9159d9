"""What is to be watched of a pipeline, as the last pass over it saw it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailhold_api.parts import revision_name
from tailhold_api.slo import Slo
from tailhold_operator.keeping import Kept
from tailhold_operator.observe import Pod, Report, Seen, pods_of


@dataclass(frozen=True)
class Target:
    """Pods, and what is promised of them."""

    namespace: str
    slo: Slo
    pods: tuple[Pod, ...]
    """Those that run and can be reached; what is not ready any more still has counters."""
    revisions: Mapping[str, str] = field(default_factory=dict)
    """The revision that each pod said it runs, by the pod's UID."""
    said: Kept | None = None
    """What that pass says of the promises."""


def target_of(seen: Seen, slo: Slo, said: Kept | None) -> Target:
    """All pods that answer questions, or did, or will."""
    pods = tuple(pod for pod in pods_of(seen) if pod.pod_part and pod.phase == "Running" and pod.ip)
    told = {pod.uid: seen.reports[pod.name] for pod in pods if pod.name in seen.reports}
    names = {uid: _revision(report) for uid, report in told.items()}
    return Target(seen.pipeline["metadata"]["namespace"], slo, pods, names, said)


def _revision(report: Report) -> str:
    """Empty where the pod runs nothing yet."""
    if not (report.pod_digest and report.content_digest):
        return ""
    return revision_name(report.pod_digest, report.content_digest)
