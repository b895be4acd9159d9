"""The pods of each pod part, counted for a rollout and for the status."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from tailhold_api.status import Progress, RevisionStatus, StartPhase
from tailhold_operator.content import Taker
from tailhold_operator.diagnosis import broken, diagnose, lacks_room
from tailhold_operator.kinds import Manifest
from tailhold_operator.observe import Deployment, Pod, Report, Seen, read_deployment
from tailhold_operator.rollout.view import Side

KEPT_FAILED_PODS = 3
_PHASES = 12
"""As many as a status has room for."""
_STOP_LATE = timedelta(seconds=30)
_OVER = ("Succeeded", "Failed")


def sides_of(seen: Seen, pods: Iterable[Pod], target: RevisionStatus | None, gpu: str) -> Mapping[str, Side]:
    """What each Deployment has, by pod part."""
    deployments = (read_deployment(each) for each in seen.of_kind("Deployment"))
    return {each.pod_part: _side(each, list(pods), seen.reports, target, gpu) for each in deployments}


def leaving(pods: Iterable[Pod], parts: Collection[str | None], now: datetime) -> int:
    """How many pods will give their room back soon: those that stop, Jobs' among them, and those of no part that is
    needed.

    One that should have stopped long ago is on a node that does not answer, and gives nothing back.
    """
    holding = [pod for pod in pods if pod.node and pod.phase not in _OVER]
    stopping = sum(1 for pod in holding if pod.terminating and _stops_in_time(pod, now))
    return stopping + sum(1 for pod in holding if pod.pod_part and not pod.terminating and pod.pod_part not in parts)


def _stops_in_time(pod: Pod, now: datetime) -> bool:
    return now < datetime.fromisoformat(pod.stops.replace("Z", "+00:00")) + _STOP_LATE


def takers(pods: Iterable[Pod], part: str, reports: Mapping[str, Report]) -> tuple[Taker, ...]:
    """Ready pods of a pod part, in a fixed order, with the content that they run."""
    ready = sorted((pod for pod in pods if pod.pod_part == part and answers(pod)), key=lambda pod: pod.name)
    return tuple(Taker(pod.name, _content(reports.get(pod.name))) for pod in ready)


def confirming(pods: Iterable[Pod], reports: Mapping[str, Report], target: RevisionStatus | None) -> tuple[Pod, ...]:
    """Ready pods that say that they run both parts of a revision, in a fixed order."""
    found = (pod for pod in pods if answers(pod) and runs(reports.get(pod.name), target))
    return tuple(sorted(found, key=lambda pod: pod.name))


def answers(pod: Pod) -> bool:
    """Whether a Service would send questions to it."""
    return pod.ready and not pod.terminating


def turned_away(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods that nodes did not admit and that are more than anybody needs to see, oldest first."""
    refused = sorted((pod for pod in pods if pod.refused and pod.pod_part), key=lambda pod: pod.created)
    return tuple(refused[: max(0, len(refused) - KEPT_FAILED_PODS)])


def runs(report: Report | None, target: RevisionStatus | None) -> bool:
    """Whether a pod says that it runs both parts of a revision: being ready says less."""
    if report is None or target is None:
        return False
    return (report.pod_digest, report.content_digest) == (target.pod_digest, target.content_digest)


def _side(
    deployment: Deployment,
    pods: list[Pod],
    reports: Mapping[str, Report],
    target: RevisionStatus | None,
    gpu: str,
) -> Side:
    own = [pod for pod in pods if pod.pod_part == deployment.pod_part]
    ready = [pod for pod in own if answers(pod)]
    return Side(
        wanted=deployment.replicas,
        pods=sum(1 for pod in own if not pod.refused),
        ready=len(ready),
        confirmed=sum(1 for pod in ready if runs(reports.get(pod.name), target)),
        homeless=sum(1 for pod in own if lacks_room(pod)),
        created=deployment.created,
        trouble=diagnose(own, deployment, reports, gpu),
        broken=broken(own, reports),
    )


def _content(report: Report | None) -> str | None:
    return report.content_digest if report else None


def newest_phases(seen: Seen, pods: Iterable[Pod]) -> tuple[StartPhase, ...]:
    """The start of the youngest pod that tells of it."""
    told = [pod for pod in pods if pod.name in seen.reports and seen.reports[pod.name].phases]
    newest = max(told, key=lambda pod: (pod.created, pod.name), default=None)
    return seen.reports[newest.name].phases[:_PHASES] if newest else ()


def fetching(seen: Seen, pods: Iterable[Pod]) -> Progress | None:
    """What the youngest pod that does not answer yet fetches."""
    told = [pod for pod in pods if not pod.ready and pod.name in seen.reports and seen.reports[pod.name].progress]
    newest = max(told, key=lambda pod: (pod.created, pod.name), default=None)
    return seen.reports[newest.name].progress if newest else None


def selector_text(selector: Manifest) -> str:
    """A label selector as autoscalers read it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))


def server_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods that answer questions, or are to."""
    return tuple(pod for pod in pods if pod.pod_part)
