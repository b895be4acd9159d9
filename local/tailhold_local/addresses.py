"""Which addresses a cluster has: everything follows from its slot, so that clusters never meet.

A cluster lives in network namespaces of its own, so its ports can clash with nobody's. Only its addresses
are seen by the host, and each slot has a range of its own.
"""

from dataclasses import dataclass
from ipaddress import IPv4Network

SLOTS = range(10)
API_PORT = 6443
ETCD_PORT = 2379
KUBELET_PORT = 10250
DNS_PORT = 53


@dataclass(frozen=True)
class NodeAddresses:
    """Where one node and its pods are found."""

    letter: str
    address: str
    pods: str
    gateway: str

    @property
    def name(self) -> str:
        """The node's name in Kubernetes."""
        return f"node-{self.letter}"


@dataclass(frozen=True)
class Addresses:
    """The ranges, addresses and links of the cluster in one slot."""

    slot: int

    @property
    def _base(self) -> str:
        return f"10.{200 + self.slot}"

    @property
    def everything(self) -> str:
        """The range the host routes into the cluster: nodes, pods and Services."""
        return f"{self._base}.0.0/16"

    @property
    def host(self) -> str:
        """The host's own address, as nodes and pods see it."""
        return f"{self._base}.0.1"

    @property
    def link(self) -> str:
        """The interface by which the host reaches the cluster."""
        return f"tailhold{self.slot}"

    @property
    def control(self) -> str:
        """The address of the control plane: that of the first node."""
        return self.node("a").address

    @property
    def pods(self) -> str:
        """The range of all nodes' pods."""
        return f"{self._base}.16.0/20"

    @property
    def services(self) -> str:
        """The range of Services."""
        return f"{self._base}.32.0/20"

    @property
    def api_service(self) -> str:
        """The address of the `kubernetes` Service."""
        return f"{self._base}.32.1"

    @property
    def dns_service(self) -> str:
        """The address of the `kube-dns` Service."""
        return f"{self._base}.32.10"

    @property
    def api_url(self) -> str:
        """Where the API server answers, from the host and from pods."""
        return f"https://{self.control}:{API_PORT}"

    def node(self, letter: str) -> NodeAddresses:
        """The addresses of node `a` or `b`."""
        index = ord(letter) - ord("a")
        pods = f"{self._base}.{16 + index}"
        return NodeAddresses(letter, f"{self._base}.0.{2 + index}", f"{pods}.0/24", f"{pods}.1")


def overlapping(addresses: Addresses, routes: dict[str, str]) -> tuple[str, str] | None:
    """The first foreign route (range, interface) that the cluster's addresses would hide or be hidden by."""
    ours = IPv4Network(addresses.everything)
    for destination, interface in routes.items():
        foreign = interface != addresses.link and IPv4Network(destination, strict=False).prefixlen > 0
        if foreign and IPv4Network(destination, strict=False).overlaps(ours):
            return destination, interface
    return None
