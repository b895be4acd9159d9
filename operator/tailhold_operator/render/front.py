"""What stands in front of the pods: Service, disruption budget and service account."""

from tailhold_api import names
from tailhold_operator.kinds import Manifest
from tailhold_operator.render.identity import Identity

_PORTS = {
    "http": {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"},
    "https": {"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https", "appProtocol": "https"},
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
        "ports": [_port(name, template) for name in _PORTS if name in _open(template)],
    }
    return service


def render_url(identity: Identity, template: Manifest | None) -> str:
    """Where OpenAI's clients find it within the cluster."""
    scheme = "https" if "https" in _open(template) else "http"
    return f"{scheme}://{identity.host}/v1"


def _port(name: str, template: Manifest | None) -> Manifest:
    port = _PORTS[name]
    if name == "grpc" and "https" in _open(template):  # HTTP/2 beneath TLS is agreed on in the handshake
        return {key: value for key, value in port.items() if key != "appProtocol"}
    return port


def _open(template: Manifest | None) -> set[str]:
    containers = template["spec"]["containers"] if template else ()
    found = {port["name"] for each in containers for port in each.get("ports", ())}
    return found if "https" in found else found | {"http"}


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
