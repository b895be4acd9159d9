"""The Job that looks at models and image before a pod starts."""

from tailhold_api import names
from tailhold_api.codec import digest
from tailhold_api.inspection import InspectionPart
from tailhold_api.parts import SHORT, PodPart
from tailhold_operator.kinds import Manifest
from tailhold_operator.render import pod
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.server import variables, where
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
    volumes, mounts = _volumes(part, short, identity)
    container = pod.container("inspect", part.image, setup, ["inspect", "--part", names.INSPECTION_PATH], mounts)
    container |= {"env": variables(wanted.pod, identity, setup), "resources": _RESOURCES}
    spec = pod.pod_spec(setup, identity.child(), container, volumes, wanted.pod.image_pull_secrets)
    spec |= where(wanted.placement) | {"restartPolicy": "OnFailure"}
    template = {"metadata": {"labels": {**identity.labels(names.COMPONENT_INSPECTION), **labels}}, "spec": spec}
    job["spec"] = {"backoffLimit": _TRIES, "template": template}
    return job


def _volumes(part: InspectionPart, short: str, identity: Identity) -> tuple[list[Manifest], list[Manifest]]:
    name = identity.child("inspection", short)
    config, config_mount = pod.config_map("inspection", name, f"{names.CONFIG_FOLDER}/inspection")
    claims, claim_mounts = pod.claims((*pod.claim_of(part.generator), *pod.claim_of(part.embedder)))
    cache, cache_mounts = pod.scratch(_CACHE_MEBIBYTES)
    return [config, *claims, *cache], [config_mount, *claim_mounts, *cache_mounts]
