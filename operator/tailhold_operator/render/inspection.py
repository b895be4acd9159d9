"""The Job that looks at models and image before a pod starts."""

from tailhold_api import names
from tailhold_api.affinity import Affinity
from tailhold_api.codec import digest
from tailhold_api.inspection import InspectionPart
from tailhold_api.parts import SHORT, PodPart
from tailhold_api.placement import Placement
from tailhold_operator.kinds import Manifest
from tailhold_operator.render import fetching, given, pod
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.server import where
from tailhold_operator.render.setup import Setup

_CACHE_MEBIBYTES = 1024
_TRIES = 10_000
"""Kubelet waits up to five minutes between them: files that are put in place are found without a word to us."""
_RESOURCES = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "50m", "memory": "256Mi"}}


def render_inspection_job(part: InspectionPart, wanted: PodPart, identity: Identity, setup: Setup) -> Manifest:
    """It runs where the pods are to run, so that their image is on a node when they come; it takes no GPU."""
    short = digest(part)[:SHORT]
    labels = {names.LABEL_INSPECTION: short}
    job = identity.object("Job", identity.child("inspect", short), names.COMPONENT_INSPECTION, labels)
    volumes, mounts = _volumes(part, short, wanted, identity)
    rules, args = wanted.pod, ["inspect", "--part", names.INSPECTION_PATH]
    container = pod.container("inspect", part.image, setup, rules, args, mounts)
    env = [*pod.environment(identity, setup), *fetching.environment(wanted.server.cache)]
    container |= {"env": given.variables(rules, env), "resources": _RESOURCES}
    spec = pod.pod_spec(setup, rules, identity, container, volumes)
    spec |= where(_without_neighbours(wanted.placement)) | {"restartPolicy": "OnFailure"}
    metadata = given.metadata(rules, {**identity.labels(names.COMPONENT_INSPECTION), **labels})
    job["spec"] = {"backoffLimit": _TRIES, "template": {"metadata": metadata, "spec": spec}}
    return job


def _without_neighbours(placement: Placement) -> Placement:
    """Which pods are on the node is for those that stay: the one node that fits may have the pods of before."""
    nodes = placement.affinity.node_affinity if placement.affinity else None
    return placement.model_copy(update={"affinity": Affinity(node_affinity=nodes) if nodes else None})


def _volumes(part: InspectionPart, short: str, wanted: PodPart, identity: Identity) -> fetching.Volumes:
    """The cache too: what is there need not be looked for elsewhere. Nothing large is fetched."""
    name = identity.child("inspection", short)
    config, config_mount = pod.config_map("inspection", name, f"{names.CONFIG_FOLDER}/inspection")
    sources = [each for each in (part.generator, part.embedder, part.snapshots) if each]
    writable = fetching.writable(wanted.server.cache)
    claims, claim_mounts = pod.claims((*fetching.claims_of(sources), *writable), writable)
    fetched, fetched_mounts = fetching.volumes(sources, wanted.pod.trust)
    cache, cache_mounts = pod.scratch(_CACHE_MEBIBYTES)
    return [config, *claims, *fetched, *cache], [config_mount, *claim_mounts, *fetched_mounts, *cache_mounts]
