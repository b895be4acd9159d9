"""The pods that answer questions: the template, and the Deployment around it."""

import math
from functools import partial

from tailhold_api import codec, names
from tailhold_api.parts import SHORT, PodPart
from tailhold_api.placement import Gpu, Placement, Toleration
from tailhold_api.pod import Pod
from tailhold_operator.kinds import Manifest
from tailhold_operator.render import fetching, given, pod
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.quantity import mebibytes, millicores
from tailhold_operator.render.setup import Setup

CONTAINER = "server"
_NO_DEADLINE = 2**31 - 1
"""What the Deployment controller takes as "never": the deadline of a rollout is ours."""
_PRE_STOP_SECONDS = 5
"""A pod that is going still gets connections until every node knows."""
_GRACE_SECONDS = 15
_STARTUP_PERIOD_SECONDS = 5


def render_template(part: PodPart, identity: Identity, setup: Setup) -> Manifest:
    """The pod template of a pod part. It is rendered once and kept: a later release may render another."""
    digest = codec.digest(part)
    volumes, mounts = _volumes(part, identity, digest[:SHORT])
    image = part.server.image or setup.image
    args = ["serve", "--pod", names.POD_PART_PATH, "--content", names.CONTENT_PATH]
    container = pod.container(CONTAINER, image, setup, part.pod, args, mounts) | _life(part)
    env = given.variables(part.pod, [*pod.environment(identity, setup), *fetching.environment(part.server.cache)])
    container |= {"env": env, "resources": resources(part.placement)}
    spec = pod.pod_spec(setup, part.pod, identity, container, volumes)
    spec |= where(part.placement) | _cluster_rules(part.pod, identity, digest[:SHORT])
    spec["terminationGracePeriodSeconds"] = _PRE_STOP_SECONDS + part.server.drain_seconds + _GRACE_SECONDS
    labels = {**identity.labels(names.COMPONENT_SERVER), names.LABEL_POD_PART: digest[:SHORT]}
    return {"metadata": given.metadata(part.pod, labels, _scraped(part)), "spec": spec}


def render_deployment(identity: Identity, pod_part: str, template: Manifest, replicas: int) -> Manifest:
    """The Deployment of a pod part, by its short digest."""
    labels = {names.LABEL_POD_PART: pod_part}
    deployment = identity.object("Deployment", identity.child(pod_part), labels=labels)
    deployment["spec"] = {
        "replicas": replicas,
        "progressDeadlineSeconds": _NO_DEADLINE,
        "revisionHistoryLimit": 1,
        "selector": {"matchLabels": identity.selector(**labels)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": template,
    }
    return deployment


def _scraped(part: PodPart) -> dict[str, str]:
    """What a Prometheus that discovers pods by annotations goes by."""
    if not part.observability.metrics.scrape_annotations:
        return {}
    said = {"scrape": "true", "port": str(names.INTERNAL_PORT), "path": names.METRICS_PATH}
    said |= {"scheme": "https"} if part.server.is_internal_tls else {}
    return {f"prometheus.io/{name}": value for name, value in said.items()}


def resources(placement: Placement) -> Manifest:
    """Requests and limits. Equal where cores are owned alone, which makes the pod Guaranteed."""
    memory = mebibytes(placement.memory_mebibytes)
    limits = {"cpu": str(placement.cpu.cores), "memory": memory, **_gpus(placement.gpu)}
    return {"limits": limits, "requests": limits | {"cpu": millicores(placement.cpu.requested_millicores)}}


def _gpus(gpu: Gpu) -> dict[str, str]:
    return {gpu.resource_name: str(gpu.count)} if gpu.count else {}


def _volumes(part: PodPart, identity: Identity, short: str) -> tuple[list[Manifest], list[Manifest]]:
    config = [
        pod.config_map("pod", identity.child("pod", short), f"{names.CONFIG_FOLDER}/pod", "pod.json"),
        pod.config_map("content", identity.child(short, "content"), f"{names.CONFIG_FOLDER}/content"),
        pod.config_map("key", identity.child("key"), f"{names.CONFIG_FOLDER}/key"),
    ]
    otlp = part.observability.otlp
    if otlp and otlp.headers_secret_name:
        config.append(pod.secret("otlp-headers", otlp.headers_secret_name, names.OTLP_HEADERS_FOLDER))
    sources = [each for each in (part.generator.model, part.embedder.model, part.snapshots) if each]
    store = [part.store.claim_name] if part.store else []
    kept = [each.pvc.claim_name for each in (part.audit_sink, part.uploads) if each]
    writable = (*kept, *fetching.writable(part.server.cache))
    claims, claim_mounts = pod.claims((*store, *fetching.claims_of(sources), *writable), writable)
    fetched, fetched_mounts = fetching.volumes(sources, part.pod.trust, part.server.secret_names)
    cache, cache_mounts = pod.scratch(part.placement.cache_mebibytes)
    # vLLM keeps the blocks that are off the card in a file there.
    size = mebibytes(part.placement.shared_memory_mebibytes + part.engine.kv_offload_mebibytes)
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    volumes = [volume for volume, _ in config] + claims + fetched + cache + [memory]
    mounts = [mount for _, mount in config] + claim_mounts + fetched_mounts + cache_mounts
    return volumes, [*mounts, {"name": "shared-memory", "mountPath": "/dev/shm"}]  # noqa: S108 - a mount point


def _life(part: PodPart) -> Manifest:
    """Ports and probes. Liveness is asked only after the start-up probe has passed."""
    tries = math.ceil(part.server.startup_seconds / _STARTUP_PERIOD_SECONDS)
    probe = partial(pod.probe, tls=part.server.is_internal_tls)
    startup = probe("/startupz", periodSeconds=_STARTUP_PERIOD_SECONDS, timeoutSeconds=3, failureThreshold=tries)
    ports = {"https" if part.server.tls else "http": names.HTTP_PORT, "internal": names.INTERNAL_PORT}
    ports["handover"] = names.HANDOVER_PORT
    if part.server.grpc.enabled:
        ports["grpc"] = names.GRPC_PORT
    return {
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        "startupProbe": startup,
        "readinessProbe": probe("/readyz", periodSeconds=2, timeoutSeconds=2, failureThreshold=2),
        # The server ends itself when its engine is dead or stands still: this is for one that cannot do that any more.
        "livenessProbe": probe("/livez", periodSeconds=5, timeoutSeconds=4, failureThreshold=3),
        "lifecycle": {"preStop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
    }


def where(placement: Placement) -> Manifest:
    """Which nodes, and by which runtime."""
    found: Manifest = {}
    tolerations = [_toleration(each) for each in placement.tolerations]
    if placement.gpu.count:
        tolerations.insert(0, {"key": "nvidia.com/gpu", "operator": "Exists"})
    if tolerations:
        found["tolerations"] = tolerations
    if placement.node_labels:
        found["nodeSelector"] = placement.node_labels
    if placement.runtime_class_name:
        found["runtimeClassName"] = placement.runtime_class_name
    if placement.affinity:
        found["affinity"] = given.wire(placement.affinity)
    return found


def _cluster_rules(rules: Pod, identity: Identity, short: str) -> Manifest:
    found: Manifest = {}
    if rules.priority_class_name:
        found["priorityClassName"] = rules.priority_class_name
    if rules.spread:
        selector = {"matchLabels": identity.selector(**{names.LABEL_POD_PART: short})}
        spread = (each.model_dump(mode="json", by_alias=True) for each in rules.spread)
        found["topologySpreadConstraints"] = [each | {"labelSelector": selector} for each in spread]
    return found


def _toleration(toleration: Toleration) -> Manifest:
    told = toleration.model_dump(mode="json", by_alias=True)
    return {name: each for name, each in told.items() if each}  # the API server drops an empty value
