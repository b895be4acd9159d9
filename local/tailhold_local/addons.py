"""What a cluster holds from the start: the Service of its DNS, and what DNS may read."""

import json

from tailhold_local.addresses import DNS_PORT, Addresses

Manifest = dict[str, object]

PROTOCOLS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def manifests(addresses: Addresses) -> str:
    """One JSON list for `kubectl apply`."""
    items = [_service(addresses), _endpoints(addresses), _role(), _binding()]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _service(addresses: Addresses) -> Manifest:
    ports = [{"name": name, "protocol": protocol, "port": DNS_PORT} for name, protocol in PROTOCOLS]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": addresses.dns_service, "ports": ports},
    }


def _endpoints(addresses: Addresses) -> Manifest:
    labels = {
        "kubernetes.io/service-name": "kube-dns",
        "endpointslice.kubernetes.io/managed-by": "tailhold.dev",
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [addresses.control], "conditions": {"ready": True}}],
        "ports": [{"name": name, "protocol": protocol, "port": DNS_PORT} for name, protocol in PROTOCOLS],
    }


def _role() -> Manifest:
    watched = ["endpoints", "services", "pods", "namespaces"]
    verbs = ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": watched, "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": rules,
    }


def _binding() -> Manifest:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "system:coredns"}],
    }
