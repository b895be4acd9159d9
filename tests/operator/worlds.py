"""A pipeline in a cluster in memory, and what tests do with it."""

import asyncio
import contextlib
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from traffic import Traffic

from tailhold_api import names
from tailhold_operator.errors import ClusterError
from tailhold_operator.kinds import Manifest, Ref
from tailhold_operator.reconcile import World, reconcile
from tailhold_operator.render.config import LABEL_PART
from tailhold_operator.render.setup import Setup
from tailhold_operator.sampling import Sampler
from tailhold_operator.staging import LOOK
from tailhold_operator.testing import FakeClock, FakeCluster, FakeControllers, FakePods, Killed
from tailhold_operator.watch.rounds import Watch
from tailhold_operator.watch.sources import PodSource

SETUP = Setup(image="registry.example/tailhold/server:1")
NAMESPACE, NAME = "team", "handbook"
KEY = Ref(names.KIND, NAMESPACE, NAME)


def spec(**changes: Any) -> dict[str, Any]:
    model = {"pvc": {"claimName": "models", "path": "small"}}
    return {
        "replicas": 2,
        "generator": {"model": model},
        "embedder": {"model": model, "dimension": 384},
        "index": {"store": {"claimName": "snapshots"}},
        "corpus": {"sources": [{"name": "handbook", "pvc": {"claimName": "documents"}}]},
        **changes,
    }


def pipeline(body: dict[str, Any], name: str = NAME) -> Manifest:
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND}
    return head | {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": copy.deepcopy(body)}


def found(config: Manifest) -> str:
    """What the termination log of an inspection Job says that read nothing; `config` holds what it looks at."""
    digest = config["metadata"]["annotations"][f"{names.GROUP}/digest"]
    return json.dumps({"digest": digest, "models": digest, "vllm": "stand-in"})


def is_inspected(child: Manifest) -> bool:
    """Whether it is the ConfigMap of an inspection Job."""
    return child["kind"] == "ConfigMap" and child["metadata"]["labels"].get(LABEL_PART) == "inspection"


PROMISED = {"slo": {"objectives": [{"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 99}]}}


def page(tallies: Mapping[str, Sequence[int]], objective: str = "EndToEnd-900ms", edge: float = 0.9) -> str:
    """What a pod says at `/metrics` that answered so many in time and so many too late, by revision."""
    lines = ["# TYPE tailhold_objective_seconds histogram"]
    for revision, (good, bad) in tallies.items():
        labels = f'objective="{objective}"' + (f',revision="{revision}"' if revision else "")
        for le, count in ((edge / 2, good), (edge, good), ("+Inf", good + bad)):
            lines.append(f'tailhold_objective_seconds_bucket{{{labels},le="{le}"}} {count}')
    return "\n".join((*lines, ""))


@dataclass
class Stage:
    """The operator's view of the world, with everything else played by stand-ins."""

    clock: FakeClock = field(default_factory=FakeClock)
    setup: Setup = SETUP
    sampler: Sampler = field(default_factory=Sampler)
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(self.clock)
        self.controllers = FakeControllers(self.cluster)
        self.pods = FakePods(self.cluster)
        self.tallies: dict[tuple[str, str], list[int]] = {}
        self.watch = Watch(PodSource(self.pods), self.clock, lambda: self.clock.now.timestamp())

    @property
    def world(self) -> World:
        return World(
            cluster=self.cluster,
            pods=self.pods,
            setup=self.setup,
            public_key=lambda: '{"kty":"OKP"}',
            now=self.clock,
            sampler=self.sampler,
            watch=self.traffic if self.traffic.looks else self.watch,
            log=lambda *_: None,
        )

    def put(self, body: dict[str, Any], name: str = NAME, **metadata: Any) -> Ref:
        manifest = pipeline(body, name)
        manifest["metadata"] |= metadata
        self.cluster.put(manifest)
        return Ref(names.KIND, NAMESPACE, name)

    def step(self, key: Ref = KEY, **more: Any) -> timedelta | None:
        return asyncio.run(reconcile(self.world, key, **more))

    def look(self, seconds: float = 5, key: Ref = KEY) -> None:
        """Some time later, a look at what the pods count."""
        self.clock.pass_by(seconds=seconds)
        asyncio.run(self.watch.look(key))

    def count(self, good: int, bad: int = 0, revision: str = "", key: Ref = KEY) -> None:
        """Each pod that serves answers so many requests more; `revision` as the pods say it, or theirs."""
        for pod in self.cluster.of_kind("Pod"):
            if names.LABEL_POD_PART in pod["metadata"]["labels"]:
                tally = self.tallies.setdefault((pod["metadata"]["name"], revision), [0, 0])
                tally[0], tally[1] = tally[0] + good, tally[1] + bad
        for name in {name for name, _ in self.tallies}:
            self.pods.pages[name] = page({each: tally for (pod, each), tally in self.tallies.items() if pod == name})

    def settle(self, key: Ref = KEY, most: int = 60) -> None:
        """Until nothing is written any more and nothing is waited for, but uploads."""
        for _ in range(most):
            before = len(self.cluster.writes)
            wait = self.step(key)
            self.controllers.run()
            self.clock.pass_by(seconds=wait.total_seconds() if wait else 1)
            if wait in (None, LOOK) and len(self.cluster.writes) == before:
                return
        raise AssertionError(f"never quiet; the last writes: {self.cluster.writes[-8:]}")

    def serve(self, seconds: float, key: Ref = KEY) -> None:
        """For some time with requests, looked at as often as the operator wants to."""
        until = self.clock.now + timedelta(seconds=seconds)
        while self.clock.now < until:
            wait = None
            with contextlib.suppress(ClusterError, Killed):
                wait = self.step(key)
            self.controllers.run()
            gap = min(5.0, wait.total_seconds() if wait else 5.0)
            self.traffic.flow(self, gap)
            self.clock.pass_by(seconds=gap)

    def run(self, seconds: float, key: Ref = KEY) -> None:
        """For some time, whatever happens."""
        until = self.clock.now + timedelta(seconds=seconds)
        while self.clock.now < until:
            with contextlib.suppress(ClusterError, Killed):
                self.step(key)
            self.controllers.run()
            self.clock.pass_by(seconds=5)

    def status(self, key: Ref = KEY) -> Manifest:
        return dict(self.cluster.objects[key].get("status", {}))

    def condition(self, kind: str, key: Ref = KEY) -> tuple[str, str]:
        found = self.described(kind, key)
        return (found["status"], found["reason"])

    def described(self, kind: str, key: Ref = KEY) -> Manifest:
        return next((each for each in self.status(key)["conditions"] if each["type"] == kind), {})

    def child(self, kind: str, *suffix: str) -> Manifest:
        return self.cluster.objects[Ref(kind, NAMESPACE, names.child_name(NAME, *suffix))]

    def deployments(self) -> dict[str, int]:
        """Replicas by pod part."""
        found = self.cluster.of_kind("Deployment")
        return {each["metadata"]["labels"][names.LABEL_POD_PART]: each["spec"]["replicas"] for each in found}

    def served(self) -> str:
        return str(self.child("Service")["spec"]["selector"][names.LABEL_POD_PART])

    def front(self) -> str:
        """The pod part that the Service sends to; empty before there is one."""
        service = self.cluster.objects.get(Ref("Service", NAMESPACE, names.child_name(NAME)))
        return str(service["spec"]["selector"][names.LABEL_POD_PART]) if service else ""

    def children(self) -> dict[Ref, Manifest]:
        """Everything but the pipeline, its pods and Events, without what differs from run to run."""
        left = {ref: each for ref, each in self.cluster.objects.items() if ref.kind not in ("Pod", "Event", names.KIND)}
        return {ref: each.get("spec") or each.get("data") or {} for ref, each in left.items()}
