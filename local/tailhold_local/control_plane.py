"""The commands of etcd, the API server, the controllers, the scheduler and DNS."""

import json
from pathlib import Path

from tailhold_local.addresses import API_PORT, DNS_PORT, ETCD_PORT, Addresses
from tailhold_local.binaries import Binaries
from tailhold_local.certificates import Subject
from tailhold_local.layout import Layout
from tailhold_local.plan import Component, Settings

ETCD = f"http://127.0.0.1:{ETCD_PORT}"
ETCD_PEER = "http://127.0.0.1:2380"


def subjects(addresses: Addresses, settings: Settings) -> tuple[Subject, ...]:
    """Everyone who gets a certificate."""
    short = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    names = (
        addresses.control,
        addresses.api_service,
        "127.0.0.1",
        *short,
        "kubernetes.default.svc.cluster.local",
    )
    nodes = (addresses.node(letter) for letter in settings.letters)
    return (
        Subject("apiserver", "kube-apiserver", addresses=names),
        Subject("admin", "kubernetes-admin", "system:masters"),
        Subject("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        Subject("controller-manager", "system:kube-controller-manager"),
        Subject("scheduler", "system:kube-scheduler"),
        Subject("kube-proxy", "system:kube-proxy"),
        Subject("coredns", "system:coredns"),
        *(Subject(n.name, f"system:node:{n.name}", "system:nodes", (n.address, n.name)) for n in nodes),
    )


def components(layout: Layout, addresses: Addresses, binaries: Binaries) -> tuple[Component, ...]:
    """The control plane, in the order in which one needs the other."""
    return (
        _etcd(layout, binaries),
        _api_server(layout, addresses, binaries),
        _controller_manager(layout, addresses, binaries),
        _scheduler(layout, binaries),
        _dns(layout, binaries),
    )


def flags(**values: str | int | Path) -> tuple[str, ...]:
    """Command-line flags from names with underscores."""
    return tuple(f"--{name.replace('_', '-')}={value}" for name, value in values.items())


def audit_policy() -> str:
    """Who did what to which object, and not the objects themselves."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    }
    return json.dumps(policy, indent=2)


def corefile(layout: Layout, addresses: Addresses) -> str:
    """DNS of the cluster; names outside it are refused at once, since the cluster is closed."""
    return f"""cluster.local in-addr.arpa ip6.arpa {{
    bind {addresses.control}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {layout.component_kubeconfig("coredns")}
        ttl 5
    }}
    cache 5
}}
. {{
    bind {addresses.control}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _etcd(layout: Layout, binaries: Binaries) -> Component:
    return Component(
        "etcd",
        (
            binaries["etcd"],
            *flags(
                data_dir=layout.etcd,
                listen_client_urls=ETCD,
                advertise_client_urls=ETCD,
                listen_peer_urls=ETCD_PEER,
                initial_advertise_peer_urls=ETCD_PEER,
                initial_cluster=f"default={ETCD_PEER}",
                log_level="warn",
            ),
            "--unsafe-no-fsync",
        ),
    )


def _api_server(layout: Layout, addresses: Addresses, binaries: Binaries) -> Component:
    pki = layout.pki
    return Component(
        "kube-apiserver",
        (
            binaries["kube-apiserver"],
            *flags(
                etcd_servers=ETCD,
                secure_port=API_PORT,
                advertise_address=addresses.control,
                service_cluster_ip_range=addresses.services,
                authorization_mode="Node,RBAC",
                enable_admission_plugins="NodeRestriction",
                allow_privileged="true",
                kubelet_preferred_address_types="InternalIP",
                client_ca_file=pki / "ca.crt",
                tls_cert_file=pki / "apiserver.crt",
                tls_private_key_file=pki / "apiserver.key",
                kubelet_certificate_authority=pki / "ca.crt",
                kubelet_client_certificate=pki / "kubelet-client.crt",
                kubelet_client_key=pki / "kubelet-client.key",
                service_account_issuer="https://kubernetes.default.svc.cluster.local",
                service_account_key_file=pki / "service-accounts.pub",
                service_account_signing_key_file=pki / "service-accounts.key",
                audit_policy_file=layout.config("audit.json"),
                audit_log_path=layout.logs / "audit.log",
                profiling="false",
            ),
        ),
    )


def _controller_manager(layout: Layout, addresses: Addresses, binaries: Binaries) -> Component:
    kubeconfig, pki = layout.component_kubeconfig("controller-manager"), layout.pki
    return Component(
        "kube-controller-manager",
        (
            binaries["kube-controller-manager"],
            *flags(
                kubeconfig=kubeconfig,
                authentication_kubeconfig=kubeconfig,
                authorization_kubeconfig=kubeconfig,
                leader_elect="false",
                use_service_account_credentials="true",
                service_account_private_key_file=pki / "service-accounts.key",
                root_ca_file=pki / "ca.crt",
                cluster_signing_cert_file=pki / "ca.crt",
                cluster_signing_key_file=pki / "ca.key",
                service_cluster_ip_range=addresses.services,
                bind_address="127.0.0.1",
            ),
        ),
    )


def _scheduler(layout: Layout, binaries: Binaries) -> Component:
    kubeconfig = layout.component_kubeconfig("scheduler")
    return Component(
        "kube-scheduler",
        (
            binaries["kube-scheduler"],
            *flags(
                kubeconfig=kubeconfig,
                authentication_kubeconfig=kubeconfig,
                authorization_kubeconfig=kubeconfig,
                leader_elect="false",
                bind_address="127.0.0.1",
            ),
        ),
    )


def _dns(layout: Layout, binaries: Binaries) -> Component:
    command = (binaries["coredns"], "-conf", str(layout.config("Corefile")), "-dns.port", str(DNS_PORT))
    return Component("coredns", command)
