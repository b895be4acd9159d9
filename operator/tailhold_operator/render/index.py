"""The Job that builds an index snapshot."""

from typing import NamedTuple

from tailhold_api import names
from tailhold_api.delivery import Cache
from tailhold_api.parts import BuildPart
from tailhold_api.pod import Pod
from tailhold_operator.kinds import Manifest
from tailhold_operator.observe import HOPELESS
from tailhold_operator.render import fetching, given, pod
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.quantity import mebibytes, millicores
from tailhold_operator.render.setup import Setup

CONTAINER = "index"
_CACHE_MEBIBYTES = 8192
_TRIES = 3


PINNED = "TAILHOLD_PINNED_SNAPSHOTS"
"""Digests, apart by blanks, that a build must not delete: what serves, and what a rollback needs."""
KEPT = "TAILHOLD_KEEP_SNAPSHOTS"
"""How many snapshots before the new one stay."""
_MOST_MILLICORES = 4000


class JobMeans(NamedTuple):
    """What a Job is given: nothing of it changes what is built."""

    image: str
    memory_mebibytes: int
    millicores: int
    keep_snapshots: int
    pinned: tuple[str, ...] = ()
    """Snapshots that stay, whatever their age."""
    rules: Pod = Pod()
    """What the cluster's own rules ask of its pod."""
    cache: Cache | None = None
    """Where fetched models are kept."""


def render_job(part: BuildPart, build: str, identity: Identity, setup: Setup, means: JobMeans) -> Manifest:
    """The Job of a build part, by its short digest."""
    labels = {names.LABEL_BUILD: build}
    job = identity.object("Job", identity.child("index", build), names.COMPONENT_INDEX, labels)
    job["spec"] = {
        "backoffLimit": _TRIES,
        "podFailurePolicy": {"rules": _failure_rules()},
        "template": _template(part, build, identity, setup, means),
    }
    return job


def _template(part: BuildPart, build: str, identity: Identity, setup: Setup, means: JobMeans) -> Manifest:
    volumes, mounts = _volumes(part, build, identity, means)
    args = ["index", "build", "--build", names.BUILD_PATH, "--progress-port", str(names.INTERNAL_PORT)]
    container = pod.container(CONTAINER, means.image, setup, means.rules, args, mounts)
    container |= {
        "env": given.variables(means.rules, [*pod.environment(identity, setup), *_environment(means)]),
        "ports": [{"name": "internal", "containerPort": names.INTERNAL_PORT, "protocol": "TCP"}],
        "resources": _resources(means),
    }
    spec = pod.pod_spec(setup, means.rules, identity, container, volumes) | {"restartPolicy": "Never"}
    labels = {**identity.labels(names.COMPONENT_INDEX), names.LABEL_BUILD: build}
    return {"metadata": given.metadata(means.rules, labels), "spec": spec}


def _volumes(part: BuildPart, build: str, identity: Identity, means: JobMeans) -> fetching.Volumes:
    sources = [source for source in part.corpus.sources if source.config_map]
    wanted = dict.fromkeys(source.config_map.name for source in sources if source.config_map)
    config = [pod.config_map("build", identity.child("build", build), f"{names.CONFIG_FOLDER}/build")]
    config += [
        pod.config_map(f"documents-{at}", name, f"{names.CONFIG_MAPS_FOLDER}/{name}") for at, name in enumerate(wanted)
    ]
    writable = (part.store.claim_name, *fetching.writable(means.cache))
    claims, claim_mounts = pod.claims((*_claimed(part), *fetching.writable(means.cache)), writable)
    fetched, fetched_mounts = fetching.volumes((part.embedder.model, part.generator.model), means.rules.trust)
    cache, cache_mounts = pod.scratch(_CACHE_MEBIBYTES)
    volumes = [volume for volume, _ in config] + claims + fetched + cache
    return volumes, [mount for _, mount in config] + claim_mounts + fetched_mounts + cache_mounts


def _claimed(part: BuildPart) -> list[str]:
    models = fetching.claims_of((part.embedder.model, part.generator.model))
    documents = [source.pvc.claim_name for source in part.corpus.sources if source.pvc]
    uploads = [part.corpus.uploads.pvc.claim_name] if part.corpus.uploads else []
    return [part.store.claim_name, *models, *documents, *uploads]


def _environment(means: JobMeans) -> list[Manifest]:
    values = {PINNED: " ".join(means.pinned), KEPT: str(means.keep_snapshots)}
    ours = [{"name": name, "value": value} for name, value in values.items()]
    return [*ours, *fetching.environment(means.cache)]


def _resources(means: JobMeans) -> Manifest:
    """Never whole cores with requests equal to limits: kubelet would pin them, away from the servers."""
    memory, most = mebibytes(means.memory_mebibytes), max(_MOST_MILLICORES, means.millicores + 1000)
    limits = {"cpu": millicores(most), "memory": memory}
    return {"limits": limits, "requests": {"cpu": millicores(means.millicores), "memory": memory}}


def _failure_rules() -> list[Manifest]:
    hopeless = {"containerName": CONTAINER, "operator": "In", "values": [HOPELESS]}
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    return [
        {"action": "FailJob", "onExitCodes": hopeless},
        {"action": "Ignore", "onPodConditions": disrupted},
    ]
