"""What is seen of the cluster, as values that decisions are made of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tailhold_api import names
from tailhold_api.handover import Candidate, Handover
from tailhold_api.slo import Objectives
from tailhold_api.status import CapacityStatus, Progress, StartPhase
from tailhold_operator.judge.watched import Watched
from tailhold_operator.kinds import Manifest, Ref, label_of, uid_of

_IMAGE_TROUBLE = (
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
)
_CONTAINER_TROUBLE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")


NOTHING = Handover(weight_percent=0, revision="0-0")
"""Nothing is handed over. As an order it ends what was, whatever it was."""
HOPELESS = 2
"""The exit code of our containers that says that trying again cannot help."""


@dataclass(frozen=True)
class Ending:
    """How a container ended last."""

    exit_code: int
    reason: str
    """Ours from the termination log, or else kubelet's, as `OOMKilled`."""
    message: str
    told: Mapping[str, Any] = field(default_factory=dict)
    """What stands in the termination log."""


@dataclass(frozen=True)
class Pod:
    """A pod of ours."""

    name: str
    uid: str
    node: str
    ip: str
    pod_part: str
    """Short digest of the pod part; empty for a pod of a Job."""
    build: str
    """Short digest of what an index Job builds from; empty for all others."""
    inspection: str
    """Short digest of what an inspection Job looks at; empty for all others."""
    created: str
    phase: str
    ready: bool
    ready_since: str
    """When `ready` last changed, RFC 3339; empty where it is not said."""
    started: str
    """When its container began to run, RFC 3339; empty while none runs."""
    stops: str
    """When it is to have stopped at the latest, RFC 3339; empty for one that stays."""
    restarts: int
    waiting: str
    """Kubelet's reason for not starting the container."""
    waiting_message: str
    unschedulable: str
    """The scheduler's words; empty once a node is found."""
    refused: str
    """Kubelet's reason for not admitting the pod at all."""
    ending: Ending | None
    warning: str = ""
    """What an Event warns of: why its containers are not made."""
    server_name: str = ""
    """The name in its certificate, where its internal port speaks TLS; else empty."""
    client_name: str = ""
    """The name in its certificate, where clients and pods that hand over have to speak TLS; else empty."""

    @property
    def was_ready(self) -> bool:
        """Whether its container, which is not ready now, was so before: `ready` changed once since it began to run."""
        return bool(self.started) and self.ready_since > self.started

    @property
    def is_held_up(self) -> bool:
        """Whether it has a node and no container yet."""
        return self.phase == "Pending" and bool(self.node)

    @property
    def held_by(self) -> str:
        """Who keeps its containers from being made, in their own words; empty where nobody does."""
        if self.unschedulable or self.waiting_message:
            return self.unschedulable or f"{self.waiting}: {self.waiting_message}"
        return self.warning if self.is_held_up else ""

    @property
    def terminating(self) -> bool:
        """Whether it is being stopped."""
        return bool(self.stops)

    @property
    def has_image_trouble(self) -> bool:
        """Whether the image cannot be had."""
        return self.waiting in _IMAGE_TROUBLE

    @property
    def has_container_trouble(self) -> bool:
        """Whether kubelet cannot make the container."""
        return self.waiting in _CONTAINER_TROUBLE


@dataclass(frozen=True)
class Deployment:
    """The pods of one pod part, as asked for."""

    pod_part: str
    replicas: int
    created: datetime
    trouble: str
    """Why pods cannot even be created: a quota, a policy, a missing RuntimeClass."""


@dataclass(frozen=True)
class Job:
    """An index build or an inspection."""

    digest: str
    """Short digest of what it builds from or looks at."""
    created: str
    complete: bool
    failed: bool
    message: str
    warning: str = ""
    """What an Event warns of: why it gets no pod."""


@dataclass(frozen=True)
class ChainHead:
    """The last audit record of a pod."""

    sequence: int
    hash: str


@dataclass(frozen=True)
class Report:
    """What a pod says of itself at `/v1/tuning`."""

    pod_digest: str
    content_digest: str
    snapshot: str
    phase: str = ""
    phases: tuple[StartPhase, ...] = ()
    error: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What vLLM runs with, by the fields of `spec.engine`; others beside them."""
    progress: Progress | None = None
    """What it fetches, and how far it is."""
    rates: Mapping[str, Any] = field(default_factory=dict)
    """What it measured of itself."""
    audit: ChainHead | None = None
    """None where nothing is recorded."""
    uploads: str | None = None
    """Digest of the documents that clients added, empty for none; None of a pod that takes no uploads."""
    objectives: Objectives | None = None
    """What it counts; None of a server that counts none."""
    handover: Handover | None = None
    """What it hands over; None of a server that hands over nothing."""


@dataclass(frozen=True)
class Seen:
    """One fresh look at a pipeline and all that it owns."""

    pipeline: Manifest
    children: Mapping[Ref, Manifest]
    """What the pipeline's UID controls and is not being deleted."""
    leaving: frozenset[Ref] = frozenset()
    """Children that are being deleted: their names are not free yet."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    """By pod name; a pod that does not answer has none."""
    progress: Mapping[str, Any] | None = None
    """What the running index Job says."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """What Events warn of, by the UID of what does not get on."""
    p99_milliseconds: int | None = None
    capacity: CapacityStatus | None = None
    sampled: bool = False
    """Whether this is one of the seldom looks at what changes all the time."""
    watched: Watched = field(default_factory=Watched)
    """What its revisions were seen to do with the requests that they got."""

    def of_kind(self, kind: str) -> tuple[Manifest, ...]:
        """The children of a kind."""
        return tuple(child for ref, child in self.children.items() if ref.kind == kind)

    def find(self, kind: str, name: str) -> Manifest | None:
        """A child by name."""
        return self.children.get(Ref(kind, self.pipeline["metadata"]["namespace"], name))


def pods_of(seen: Seen) -> tuple[Pod, ...]:
    """All pods of the pipeline."""
    found = (read_pod(each) for each in seen.of_kind("Pod"))
    return tuple(replace(pod, warning=seen.warnings.get(pod.uid, "")) for pod in found)


def jobs_of(seen: Seen) -> tuple[Job, ...]:
    """All index Jobs of the pipeline."""
    return _jobs(seen, names.LABEL_BUILD)


def inspections_of(seen: Seen) -> tuple[Job, ...]:
    """All inspection Jobs of the pipeline."""
    return _jobs(seen, names.LABEL_INSPECTION)


def _jobs(seen: Seen, label: str) -> tuple[Job, ...]:
    found = (each for each in seen.of_kind("Job") if label_of(each, label))
    return tuple(read_job(each, label, seen.warnings.get(uid_of(each), "")) for each in found)


def read_pod(manifest: Manifest) -> Pod:
    """What matters of a pod. Missing parts of its status are as good as empty ones."""
    status = manifest.get("status") or {}
    containers = status.get("containerStatuses") or [{}]
    first = containers[0]
    waiting = (first.get("state") or {}).get("waiting") or {}
    metadata = manifest["metadata"]
    return Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=(manifest.get("spec") or {}).get("nodeName", ""),
        ip=status.get("podIP", ""),
        pod_part=label_of(manifest, names.LABEL_POD_PART),
        build=label_of(manifest, names.LABEL_BUILD),
        inspection=label_of(manifest, names.LABEL_INSPECTION),
        created=metadata.get("creationTimestamp", ""),
        phase=status.get("phase", ""),
        ready=_condition(status, "Ready").get("status") == "True",
        ready_since=str(_condition(status, "Ready").get("lastTransitionTime") or ""),
        started=((first.get("state") or {}).get("running") or {}).get("startedAt") or "",
        stops=metadata.get("deletionTimestamp", ""),
        restarts=int(first.get("restartCount", 0)),
        waiting=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        unschedulable=_unschedulable(status),
        refused=_refused(status),
        ending=_ending(first),
        server_name=_server_name(manifest),
        client_name=_client_name(manifest),
    )


def read_deployment(manifest: Manifest) -> Deployment:
    """What matters of a Deployment."""
    status = manifest.get("status") or {}
    failure = _condition(status, "ReplicaFailure")
    return Deployment(
        pod_part=label_of(manifest, names.LABEL_POD_PART),
        replicas=int(manifest["spec"].get("replicas", 1)),
        created=datetime.fromisoformat(manifest["metadata"]["creationTimestamp"].replace("Z", "+00:00")),
        trouble=failure.get("message", "") if failure.get("status") == "True" else "",
    )


def read_job(manifest: Manifest, label: str, warning: str = "") -> Job:
    """What matters of a Job whose label names what it is for."""
    status = manifest.get("status") or {}
    failed = _condition(status, "Failed")
    return Job(
        digest=label_of(manifest, label),
        created=manifest["metadata"].get("creationTimestamp", ""),
        complete=_condition(status, "Complete").get("status") == "True",
        failed=failed.get("status") == "True",
        message=failed.get("message", ""),
        warning=warning,
    )


def is_over(job: Manifest) -> bool:
    """Whether a Job ended, well or not."""
    status = job.get("status") or {}
    return any(_condition(status, kind).get("status") == "True" for kind in ("Complete", "Failed"))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = (each for each in status.get("conditions") or () if each.get("type") == kind)
    return next(found, {})


def _unschedulable(status: Mapping[str, Any]) -> str:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") != "False" or scheduled.get("reason") != "Unschedulable":
        return ""
    return str(scheduled.get("message") or "no node fits")


def _refused(status: Mapping[str, Any]) -> str:
    if status.get("phase") != "Failed" or status.get("containerStatuses") or not status.get("reason"):
        return ""
    return f"{status['reason']}: {status.get('message', '')}"


def _ending(container: Mapping[str, Any]) -> Ending | None:
    now, before = (container.get(key) or {} for key in ("state", "lastState"))
    ended = now.get("terminated") or before.get("terminated")
    if not ended:
        return None
    told = _told(ended.get("message", ""))
    return Ending(
        exit_code=int(ended.get("exitCode", 0)),
        reason=str(told.get("reason") or ended.get("reason", "")),
        message=str(told.get("message") or ended.get("message", "")),
        told=told,
    )


def as_candidate(pod: Pod) -> Candidate:
    """The pod as others hand requests over to it. Raises pydantic.ValidationError for one without an address."""
    return Candidate(pod=pod.name, ip=pod.ip, server_name=pod.client_name)


def _server_name(pod: Manifest) -> str:
    probes = ((each.get("readinessProbe") or {}).get("httpGet") or {} for each in _containers(pod))
    return _service_host(pod) if any(each.get("scheme") == "HTTPS" for each in probes) else ""


def _client_name(pod: Manifest) -> str:
    ports = (port for each in _containers(pod) for port in each.get("ports") or ())
    return _service_host(pod) if any(port.get("name") == "https" for port in ports) else ""


def _containers(pod: Manifest) -> Sequence[Manifest]:
    return (pod.get("spec") or {}).get("containers") or ()


def _service_host(pod: Manifest) -> str:
    return names.service_host(label_of(pod, names.LABEL_INSTANCE), pod["metadata"].get("namespace", ""))


def _told(text: str) -> Mapping[str, Any]:
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
