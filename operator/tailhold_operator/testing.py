"""Stand-ins that ship with the product: an API server in memory, and the controllers and pods around it."""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tailhold_api import codec, names
from tailhold_api.handover import EXPIRES_SECONDS, Handover
from tailhold_api.parts import ContentPart
from tailhold_api.rollout import Probe
from tailhold_api.slo import Objectives
from tailhold_api.status import ProbeStatus, StartPhase
from tailhold_operator.conditions import stamp
from tailhold_operator.errors import ConflictError
from tailhold_operator.kinds import KINDS, Manifest, Ref, is_owned_by, label_of, owner_of, ref_of, uid_of
from tailhold_operator.observe import NOTHING, ChainHead, Pod, Report
from tailhold_operator.pods import Answer, Declined, Taken, Unanswered


class Killed(Exception):  # noqa: N818 - what happens to an operator, no error of its own
    """The operator was stopped in the middle of its work."""


class FakeClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """The time that it is."""
        return self.now

    def pass_by(self, **amount: float) -> None:
        """Let some time go."""
        self.now += timedelta(**amount)


class FakeCluster:
    """An API server without schemas: it keeps objects, owners and versions, and counts writes."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.objects: dict[Ref, Manifest] = {}
        self.writes: list[str] = []
        """Every write that changed something, and every one that did not."""
        self.interrupt: Callable[[int, str], None] = lambda count, moment: None
        """Called before and after each write with its number; may raise."""
        self._clock = clock
        self._counter = 0

    def now(self) -> datetime:
        """The time that it is."""
        return self._clock()

    async def read(self, ref: Ref) -> Manifest | None:
        """One object, as it is now."""
        found = self.objects.get(ref)
        return copy.deepcopy(found) if found else None

    async def named(self, ref: Ref) -> Manifest | None:
        """The same: there are no rights here."""
        return await self.read(ref)

    async def find(self, kind: str, namespace: str, labels: str) -> tuple[Manifest, ...]:
        """Objects by one label."""
        label, _, value = labels.partition("=")
        found = (each for ref, each in self.objects.items() if ref[:2] == (kind, namespace))
        return tuple(copy.deepcopy(each) for each in found if label_of(each, label) == value)

    async def warnings(self, namespace: str, uid: str) -> tuple[Manifest, ...]:
        """The Events that warn of one object."""
        found = (each for ref, each in self.objects.items() if ref[:2] == ("Event", namespace))
        about = (each for each in found if each["type"] == "Warning" and each["involvedObject"]["uid"] == uid)
        return tuple(copy.deepcopy(each) for each in about)

    async def pipelines(self, namespace: str | None) -> tuple[Manifest, ...]:
        """All RagPipelines."""
        found = (each for ref, each in self.objects.items() if ref.kind == names.KIND)
        return tuple(copy.deepcopy(each) for each in found if namespace in (None, ref_of(each).namespace))

    async def apply(self, manifest: Manifest, uid: str) -> None:
        """Make an object so; what its controllers wrote to its status stays."""
        ref = ref_of(manifest)
        found = self.objects.get(ref)
        if uid != (uid_of(found) if found else ""):
            raise ConflictError(f"{ref}: another object of the name is there")
        self._write(f"apply {ref}", lambda: self.put(manifest))

    async def merge(self, ref: Ref, uid: str, change: Manifest) -> None:
        """Change of an object only what is named; a null takes away."""
        found = self.objects.get(ref)
        if found is None or uid_of(found) != uid:
            raise ConflictError(f"{ref}: another object of the name is there")
        self._write(f"merge {ref}", lambda: merged(found, change))

    async def delete(self, ref: Ref, uid: str) -> None:
        """Take an object away, and at once what hangs on it."""
        found = self.objects.get(ref)
        if found and uid_of(found) != uid:
            raise ConflictError(f"{ref}: another object of the name is there")
        self._write(f"delete {ref}", lambda: self.drop(ref))

    async def apply_status(self, pipeline: Manifest, status: Manifest) -> None:
        """Make the status of a RagPipeline so."""
        ref = ref_of(pipeline)
        self._write(f"status {ref}", lambda: self.objects[ref].update(status=copy.deepcopy(status)))

    async def create(self, manifest: Manifest) -> bool:
        """Make an object; False where one of the name is there already."""
        if ref_of(manifest) in self.objects:
            return False
        self._write(f"create {ref_of(manifest)}", lambda: self.put(manifest))
        return True

    async def replace(self, manifest: Manifest) -> None:
        """Put an object in the place of the one of the same resourceVersion."""
        found = self.objects.get(ref_of(manifest))
        version = manifest["metadata"].get("resourceVersion")
        if found is None or found["metadata"]["resourceVersion"] != version:
            raise ConflictError(f"{ref_of(manifest)} was changed")
        self._write(f"replace {ref_of(manifest)}", lambda: self.put(manifest))

    def put(self, manifest: Manifest) -> Manifest:
        """Store an object as the API server would, whoever asks."""
        ref = ref_of(manifest)
        found = self.objects.get(ref)
        stored = copy.deepcopy(manifest)
        self._counter += 1
        kept = found["metadata"] if found else self._new()
        same = found is not None and found.get("spec") == stored.get("spec")
        generation = kept["generation"] + (0 if same else 1)
        given = {key: kept[key] for key in ("uid", "creationTimestamp")}
        stored["metadata"] |= {**given, "resourceVersion": str(self._counter), "generation": generation}
        if found and "status" in found:
            stored.setdefault("status", found["status"])
        self.objects[ref] = stored
        return stored

    def drop(self, ref: Ref) -> None:
        """Remove an object and, as the garbage collector does, all that it controls."""
        gone = self.objects.pop(ref, None)
        if gone:
            for each in [ref for ref, each in self.objects.items() if is_owned_by(each, uid_of(gone))]:
                self.drop(each)

    def of_kind(self, kind: str) -> list[Manifest]:
        """All objects of a kind."""
        return [each for ref, each in self.objects.items() if ref.kind == kind]

    def _new(self) -> Manifest:
        return {"uid": f"uid-{self._counter}", "creationTimestamp": stamp(self._clock()), "generation": 0}

    def _write(self, what: str, act: Callable[[], Any]) -> None:
        self.interrupt(len(self.writes), "before")
        act()
        self.writes.append(what)
        self.interrupt(len(self.writes) - 1, "after")


def merged(found: Manifest, change: Mapping[str, Any]) -> None:
    """Patch in place as RFC 7386 has it."""
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            merged(found.setdefault(key, {}), value)
        else:
            found[key] = value


@dataclass
class Fate:
    """How pods of a kind fare."""

    ready: bool = True
    unschedulable: str = ""
    waiting: str = ""
    ending: Mapping[str, Any] | None = None
    """A termination log."""
    exit_code: int = 0
    restarts: int = 0


@dataclass
class FakeControllers:
    """What makes pods out of Deployments and Jobs: one call of `run` is all that they do."""

    cluster: FakeCluster
    fate: Callable[[Manifest], Fate] = field(default=lambda owner: Fate())
    result: Mapping[str, Any] = field(
        default_factory=lambda: {"snapshot": "5" * 64, "documents": 3, "failedDocuments": 0, "chunks": 9}
    )
    found: Mapping[str, Any] = field(default_factory=dict)
    """What inspection Jobs find, beside digests."""
    builds: bool = True
    """Whether index Jobs come to their end."""
    inspects: bool = True
    """Whether inspection Jobs come to their end."""
    seen_after: timedelta = timedelta()
    """How long kubelet takes to see that a pod serves."""

    def run(self) -> None:
        """Bring pods in line with Deployments and Jobs."""
        for deployment in self.cluster.of_kind("Deployment"):
            self._scale(deployment, int(deployment["spec"]["replicas"]))
        for job in self.cluster.of_kind("Job"):
            self._scale(job, 1)
            if self._ends(job):
                self._finish(job)

    def _ends(self, job: Manifest) -> bool:
        """An inspection that fails is tried again by kubelet, in the same pod, and never ends."""
        if label_of(job, names.LABEL_INSPECTION):
            return self.inspects and not self.fate(job).exit_code
        return self.builds

    def _scale(self, owner: Manifest, replicas: int) -> None:
        own = [pod for pod in self.cluster.of_kind("Pod") if is_owned_by(pod, uid_of(owner))]
        for pod in own[replicas:]:
            self.cluster.drop(ref_of(pod))
        own += [self.cluster.put(self._pod(owner, at)) for at in range(len(own), replicas)]
        for pod in own[:replicas]:
            pod["status"] = self._status(owner, pod)

    def _pod(self, owner: Manifest, at: int) -> Manifest:
        metadata = owner["metadata"]
        reference = {
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        head = {"name": f"{metadata['name']}-{at}", "namespace": metadata["namespace"]}
        labels = owner["spec"]["template"]["metadata"]["labels"]
        entry = KINDS["Pod"]
        return {
            "apiVersion": entry.api_version,
            "kind": "Pod",
            "metadata": head | {"labels": dict(labels), "ownerReferences": [reference]},
            "spec": {"nodeName": "node"},
        }

    def _status(self, owner: Manifest, pod: Manifest) -> Manifest:
        fate = self.fate(owner)
        if fate.unschedulable:
            scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            return {"phase": "Pending", "conditions": [scheduled | {"message": fate.unschedulable}]}
        running = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        state: Manifest = {"waiting": {"reason": fate.waiting}} if fate.waiting else running
        container: Manifest = {"restartCount": fate.restarts, "state": state}
        if fate.ending is not None:
            ended = {"exitCode": fate.exit_code, "reason": "Error", "message": json.dumps(fate.ending)}
            container["lastState"] = {"terminated": ended}
        ready = self._ready(pod, "True" if fate.ready and self._was_seen(pod) else "False")
        return {"phase": "Running", "podIP": _address(pod), "conditions": [ready], "containerStatuses": [container]}

    def _was_seen(self, pod: Manifest) -> bool:
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
        return self.cluster.now() - made >= self.seen_after

    def _ready(self, pod: Manifest, status: str) -> Manifest:
        """Its condition, with the time of the change."""
        before = [each for each in (pod.get("status") or {}).get("conditions", ()) if each["type"] == "Ready"]
        made = pod["metadata"]["creationTimestamp"]
        at = before[0].get("lastTransitionTime", made) if before else made
        changed = bool(before) and before[0]["status"] != status
        return {"type": "Ready", "status": status, "lastTransitionTime": stamp(self.cluster.now()) if changed else at}

    def _finish(self, job: Manifest) -> None:
        fate = self.fate(job)
        told = fate.ending if fate.exit_code else self._result(job)
        ended = {"exitCode": fate.exit_code, "message": json.dumps(told), "reason": "Completed"}
        for pod in self.cluster.of_kind("Pod"):
            if is_owned_by(pod, uid_of(job)):
                phase = "Failed" if fate.exit_code else "Succeeded"
                pod["status"] = {"phase": phase, "containerStatuses": [{"state": {"terminated": ended}}]}
        kind = "Failed" if fate.exit_code else "Complete"
        job["status"] = {"conditions": [{"type": kind, "status": "True"}]}

    def _result(self, job: Manifest) -> Mapping[str, Any]:
        """What the Job's pod leaves: the digest of an inspection is that of the part in its ConfigMap."""
        if not label_of(job, names.LABEL_INSPECTION):
            return self.result
        volumes = job["spec"]["template"]["spec"]["volumes"]
        name = next(each["configMap"]["name"] for each in volumes if each["name"] == "inspection")
        config = self.cluster.objects[Ref("ConfigMap", job["metadata"]["namespace"], name)]
        digest = config["metadata"]["annotations"][f"{names.GROUP}/digest"]
        return {"digest": digest, "models": digest, "vllm": "stand-in", **self.found}


_FORGETS = timedelta(seconds=EXPIRES_SECONDS)


def _all_well(pod: Pod, probe: Probe) -> ProbeStatus:
    return ProbeStatus(requests=probe.requests, recall_percent=100)


def _phase(pod: Pod) -> str:
    return "serving" if pod.ready or (pod.was_ready and not pod.ending) else "startEngine"


def _address(pod: Manifest) -> str:
    """Another one for each pod, and the same as long as it is there."""
    number = int(hashlib.sha256(uid_of(pod).encode()).hexdigest()[:6], 16)
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


LOADED = (StartPhase(name="load", began_milliseconds=0, milliseconds=1),)
"""How a stand-in of a pod starts."""


class FakePods:
    """Servers in the pods of a FakeCluster: each starts with what is mounted, and takes what it is handed."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.content: dict[str, ContentPart] = {}
        """What each pod runs on, by its UID."""
        self._digests: dict[str, str] = {}
        self.refuses: Callable[[Pod, ContentPart], str] = lambda pod, content: ""
        """Words of a pod that will not have a content; empty where it takes it."""
        self.engine: Mapping[str, Any] = {}
        """What each says that its engine runs with."""
        self.rates: Mapping[str, Any] = {}
        """What each says that it measured."""
        self.audit: dict[str, ChainHead] = {}
        """The last audit record of each pod, by its name."""
        self.uploads: dict[str, str | None] = {}
        """What each pod says of uploads, by its name; all that are not named say what stands at the empty name."""
        self.deaf: set[str] = set()
        """Names of pods that do not answer."""
        self.pushed: list[str] = []
        self.objectives: dict[str, Objectives] = {}
        """What each pod counts, by its UID."""
        self.latencies: dict[str, Mapping[float, float]] = {}
        self.phase: Callable[[Pod], str] = _phase
        """How far each says that it is."""
        self._handed: dict[str, tuple[Handover, datetime]] = {}
        self.probed: Callable[[Pod, Probe], ProbeStatus | None] = _all_well
        """What each answers to a probe."""
        self.pages: dict[str, str] = {}
        """What each pod says at `/metrics`, by its name; nothing where none is given."""

    async def report(self, pod: Pod) -> Report | None:
        """What a server runs."""
        if pod.name in self.deaf:
            return None
        self.runs(pod)
        content = self.content[pod.uid]
        return Report(
            self._digests[pod.uid],
            codec.digest(content),
            content.snapshot,
            self.phase(pod),
            LOADED,
            engine=self.engine,
            rates=self.rates,
            audit=self.audit.get(pod.name),
            uploads=self.uploads.get(pod.name, self.uploads.get("")),
            objectives=self.objectives.get(pod.uid, Objectives(objectives=())),
            handover=self.handed(pod),
        )

    def runs(self, pod: Pod) -> tuple[str, str]:
        """Digests of both parts that a server runs; at first what is mounted."""
        if pod.uid not in self.content:
            self.content[pod.uid] = self._mounted(pod)
            self._digests[pod.uid] = self._annotation(self._config(pod, "pod"))
        return self._digests[pod.uid], codec.digest(self.content[pod.uid])

    async def progress(self, pod: Pod) -> Mapping[str, Any] | None:
        """How far an index Job is."""
        return {"step": "embed", "done": 1, "total": 2, "unit": "documents"}

    async def buckets(self, pod: Pod) -> Mapping[float, float]:
        """How long whole answers took."""
        return self.latencies.get(pod.name, {})

    async def metrics(self, pod: Pod) -> str | Unanswered:
        """What a server counts."""
        return Unanswered("no answer") if pod.name in self.deaf else self.pages.get(pod.name, "")

    async def push(self, pod: Pod, content: ContentPart, audience: str) -> Answer:
        """Hand a server its content."""
        if pod.name in self.deaf:
            return Unanswered("no answer")
        words = self.refuses(pod, content)
        if words:
            return Declined(words)
        self.pushed.append(pod.name)
        self.content[pod.uid] = content
        return Taken()

    async def tell(self, pod: Pod, objectives: Objectives, audience: str) -> Answer:
        """Have a server count these."""
        if pod.name in self.deaf:
            return Unanswered("no answer")
        self.objectives[pod.uid] = objectives
        return Taken()

    async def hand_over(self, pod: Pod, handover: Handover, audience: str) -> Answer:
        """Have a server hand over so much, for 10 s."""
        if pod.name in self.deaf:
            return Unanswered("no answer")
        self._handed[pod.uid] = (handover, self._cluster.now())
        return Taken()

    async def probe(self, pod: Pod, probe: Probe, audience: str) -> ProbeStatus | None:
        """Ask a server questions of ours."""
        return None if pod.name in self.deaf else self.probed(pod, probe)

    def handed(self, pod: Pod) -> Handover:
        """What a server hands over now."""
        handover, at = self._handed.get(pod.uid, (NOTHING, self._cluster.now()))
        return handover if timedelta() <= self._cluster.now() - at < _FORGETS else NOTHING

    def _mounted(self, pod: Pod) -> ContentPart:
        data = self._config(pod, "content")["data"]["content.json"]
        return codec.load(ContentPart, data)

    def _config(self, pod: Pod, volume: str) -> Manifest:
        """The ConfigMap behind a volume of the pod's Deployment."""
        refs = self._cluster.objects
        found = next(each for ref, each in refs.items() if ref.kind == "Pod" and uid_of(each) == pod.uid)
        deployment = next(
            each for each in self._cluster.of_kind("Deployment") if uid_of(each) == owner_of(found)["uid"]
        )
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        name = next(each["configMap"]["name"] for each in volumes if each["name"] == volume)
        return refs[Ref("ConfigMap", found["metadata"]["namespace"], name)]

    @staticmethod
    def _annotation(config: Manifest) -> str:
        return str(config["metadata"]["annotations"][f"{names.GROUP}/digest"])
