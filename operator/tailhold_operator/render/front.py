"""What stands in front of the pods: Service, disruption budget and service account."""

from tailhold_api import names
from tailhold_operator.kinds import Manifest
from tailhold_operator.render.identity import Identity

_PORTS = {
    "http": {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"},
    # A mesh or a gateway has to be told that this is HTTP/2 from the first byte.
    "grpc": {
        "name": "grpc",
        "port": names.GRPC_PORT,
        "protocol": "TCP",
        "targetPort": "grpc",
        "appProtocol": "kubernetes.io/h2c",
    },
}


def render_service(identity: Identity, pod_part: str, template: Manifest | None) -> Manifest:
    """The one address of a pipeline, answered by the pods of one pod part, on the ports that their template has."""
    service = identity.object("Service", identity.child())
    service["spec"] = {
        "type": "ClusterIP",
        "selector": identity.selector(**{names.LABEL_POD_PART: pod_part}),
        "ports": [port for name, port in _PORTS.items() if name in _open(template)],
    }
    return service


def _open(template: Manifest | None) -> set[str]:
    containers = template["spec"]["containers"] if template else ()
    return {"http"} | {port["name"] for each in containers for port in each.get("ports", ())}


def render_budget(identity: Identity) -> Manifest:
    """One pod at a time may be drained; a single one may too, and one that is not ready always."""
    budget = identity.object("PodDisruptionBudget", identity.child())
    budget["spec"] = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": identity.selector(**{names.LABEL_COMPONENT: names.COMPONENT_SERVER})},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return budget


def render_account(identity: Identity) -> Manifest:
    """Who pods are: nobody, with no token."""
    return identity.object("ServiceAccount", identity.child()) | {"automountServiceAccountToken": False}


def served_part(service: Manifest | None) -> str | None:
    """The pod part that a Service sends questions to."""
    selector = ((service or {}).get("spec") or {}).get("selector") or {}
    return selector.get(names.LABEL_POD_PART)
