"""Every name that crosses a boundary: API group, labels, annotations, mount paths, ports, metrics."""

import hashlib
import re

GROUP = "tailhold.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "RagPipeline"
PLURAL = "ragpipelines"
SINGULAR = "ragpipeline"
SHORT_NAME = "ragp"
CATEGORY = "tailhold"
FIELD_MANAGER = "tailhold-operator"

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_PIPELINE_UID = f"{GROUP}/pipeline-uid"
LABEL_POD_PART = f"{GROUP}/pod-part"
LABEL_BUILD = f"{GROUP}/index-build"
LABEL_INSPECTION = f"{GROUP}/inspection"
ANNOTATION_REBUILD = f"{GROUP}/rebuild"
"""Any new value on a RagPipeline starts a new index build of the same corpus spec."""
ANNOTATION_PROMOTE = f"{GROUP}/promote"
"""`REVISION`, or `REVISION@anything`, on a RagPipeline: that candidate serves without a verdict."""
ANNOTATION_ABORT = f"{GROUP}/abort"
"""The same: that candidate is taken back."""
ANNOTATION_RETRY = f"{GROUP}/retry"
"""The same: that revision, which was given up, is tried again."""

COMPONENT_SERVER = "server"
COMPONENT_INDEX = "index-build"
COMPONENT_INSPECTION = "inspection"

CONFIG_FOLDER = "/etc/tailhold"
"""Where the pod's ConfigMaps are mounted."""
POD_PART_PATH = f"{CONFIG_FOLDER}/pod/pod.json"
CONTENT_PATH = f"{CONFIG_FOLDER}/content/content.json"
BUILD_PATH = f"{CONFIG_FOLDER}/build/build.json"
INSPECTION_PATH = f"{CONFIG_FOLDER}/inspection/inspection.json"
PUBLIC_KEY_PATH = f"{CONFIG_FOLDER}/key/operator.pub.json"
"""The operator's public key as a JWK: internal calls carry a token signed by its private half."""
OTLP_HEADERS_FOLDER = f"{CONFIG_FOLDER}/otlp-headers"
"""Headers for the collector of traces, a file for each: a mounted Secret."""
CLAIMS_FOLDER = "/var/lib/tailhold/claims"
"""Persistent volume claims are mounted here, each in a folder of its claim's name."""
CONFIG_MAPS_FOLDER = "/var/lib/tailhold/configmaps"
"""ConfigMaps that are corpus sources are mounted here in the index Job, each in a folder of its name."""
IMAGES_FOLDER = "/var/lib/tailhold/images"
"""Image volumes are mounted here, each in a folder named by `image_folder`."""
SECRETS_FOLDER = "/var/lib/tailhold/secrets"
"""Secrets that the serving program reads, or that files are fetched with, are mounted here, each in a folder of its
name, each key a file."""
TRUST_FOLDER = f"{CONFIG_FOLDER}/trust"
"""Certificates of the company's authorities are mounted here."""
CACHE_FOLDER = "/var/cache/tailhold"
"""HOME and every cache of the server, on one volume: the root file system is read-only."""

STAND_IN_VARIABLE = "TAILHOLD_STAND_IN"
"""The variable in `pod.env` by which a pod answers without a model, and says so."""
STAND_IN_FAULTS = f"{CACHE_FOLDER}/stand-in-faults"
"""A file that makes one pod's stand-in engine slower or worse while it runs."""
STAND_IN_NODE_FAULTS = "/run/tailhold-node/stand-in-faults"
"""The same for all stand-ins of a node, where a volume that is the node's own is mounted there."""

HTTP_PORT = 8000
"""What clients use."""
GRPC_PORT = 9000
"""What clients of gRPC use."""
INTERNAL_PORT = 8001
"""What the operator, kubelet and Prometheus use: probes, metrics, content."""
HANDOVER_PORT = 8002
"""What pods of the same pipeline use: requests that they hand over to a candidate."""

METRICS_PATH = "/metrics"

MAX_CHILD_NAME = 52
"""Room for a Deployment's two hash suffixes within a pod's hostname of 63 characters."""


def child_name(pipeline: str, *suffix: str) -> str:
    """A legal name for a child of `pipeline`, of at most 52 characters, different for different pipelines.

    A pipeline's name may have 253 characters, dots and a leading digit; a Service's may not.
    """
    tail = "".join(f"-{part}" for part in suffix)
    stem = re.sub(r"[^a-z0-9-]", "-", pipeline.lower())
    if stem == pipeline and stem[0].isalpha() and len(stem) + len(tail) <= MAX_CHILD_NAME:
        return stem + tail
    digest = hashlib.sha256(pipeline.encode()).hexdigest()[:8]
    room = MAX_CHILD_NAME - len(tail) - len(digest) - 3
    return f"p-{stem[:room].strip('-')}-{digest}{tail}"


def image_folder(reference: str) -> str:
    """The folder's name of an image volume."""
    return hashlib.sha256(reference.encode()).hexdigest()[:16]


def service_host(service: str, namespace: str) -> str:
    """A Service's name as other namespaces call it."""
    return f"{service}.{namespace}.svc"


def stage_metric(name: str) -> str:
    """The full name of one of the server's metrics."""
    return f"tailhold_{name}"


METRIC_STAGE_SECONDS = stage_metric("stage_duration_seconds")
METRIC_TTFT_SECONDS = stage_metric("time_to_first_token_seconds")
METRIC_E2E_SECONDS = stage_metric("request_duration_seconds")
METRIC_UNACCOUNTED_SECONDS = stage_metric("unaccounted_seconds")
METRIC_SPANS = stage_metric("spans_total")
METRIC_AUDIT_RECORDS = stage_metric("audit_records_total")
METRIC_AUDIT_LOST = stage_metric("audit_lost_total")
METRIC_AUDIT_SECONDS = stage_metric("audit_commit_duration_seconds")
METRIC_OBJECTIVE_SECONDS = stage_metric("objective_seconds")
METRIC_HANDOVER_REQUESTS = stage_metric("handover_requests_total")
METRIC_HANDOVER_IN_FLIGHT = stage_metric("handover_requests_in_flight")
METRIC_REQUESTS = stage_metric("requests_total")
METRIC_DENIED = stage_metric("denied_total")
METRIC_ACCESS_CURRENT = stage_metric("access_current")
METRIC_SHUT_OUT = stage_metric("client_shut_out")
METRIC_CERTIFICATE_EXPIRES = stage_metric("certificate_expiry_timestamp_seconds")
METRIC_INFO = stage_metric("revision_info")
METRIC_PREFILL_RATE = stage_metric("prefill_tokens_per_second")
METRIC_DECODE_RATE = stage_metric("decode_tokens_per_second")
METRIC_CAPACITY = stage_metric("capacity_requests_per_second")
