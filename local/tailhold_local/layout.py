"""Where a cluster keeps its files: one folder holds them all."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_local.errors import LocalError

OWN_FOLDER = "/var/log/tailhold-node"
"""A folder of each node's own, for volumes by which its pods see what is theirs alone."""
# A unix socket's path may have 107 characters; the deepest of ours adds 40 to the folder.
LONGEST_FOLDER = 66


def state_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of all clusters: `$TAILHOLD_STATE`, else /var/lib/tailhold."""
    return Path(env.get("TAILHOLD_STATE") or "/var/lib/tailhold").absolute()


def cache_root(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of what is built once: `$TAILHOLD_CACHE`, `$XDG_CACHE_HOME/tailhold`, ~/.cache/tailhold."""
    if env.get("TAILHOLD_CACHE"):
        return Path(env["TAILHOLD_CACHE"]).absolute()
    base = env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/root")) / ".cache"
    return Path(base).absolute() / "tailhold"


@dataclass(frozen=True)
class NodeLayout:
    """The files of one node."""

    folder: Path

    @property
    def containerd_socket(self) -> Path:
        """The socket of the node's containerd."""
        return self.folder / "containerd.sock"

    @property
    def kubelet(self) -> Path:
        """What the node sees as /var/lib/kubelet."""
        return self.folder / "kubelet"

    @property
    def network(self) -> Path:
        """A handle on the node's network namespace."""
        return self.folder / "net.ns"

    @property
    def mounts(self) -> Path:
        """A handle on the node's mount namespace, for the cluster's own processes."""
        return self.folder / "mnt.ns"

    @property
    def own(self) -> Path:
        """What the node, and a volume of it, sees at `OWN_FOLDER`: each node another folder."""
        return self.folder / "log" / Path(OWN_FOLDER).name

    @property
    def gpus(self) -> Path:
        """The control file of the node's stand-in GPUs."""
        return self.folder / "gpus.json"


@dataclass(frozen=True)
class Layout:
    """The files of one cluster."""

    root: Path
    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", self.name):
            raise LocalError(f"cluster name {self.name!r}: use 1 to 20 small letters, digits and inner dashes")
        if len(str(self.folder)) > LONGEST_FOLDER:
            raise LocalError(
                f"the state folder {self.folder} is too long for unix sockets (at most {LONGEST_FOLDER}"
                " characters): set TAILHOLD_STATE to a shorter folder"
            )

    @property
    def folder(self) -> Path:
        """Everything the cluster writes."""
        return self.root / self.name

    @property
    def lock(self) -> Path:
        """Held by whoever starts or stops the cluster; beside the folder, since that goes away."""
        return self.root / f".{self.name}.lock"

    @property
    def setup_lock(self) -> Path:
        """Held by whoever starts the cluster and installs on it, from the first step to the last."""
        return self.root / f".{self.name}.setup.lock"

    @property
    def settings(self) -> Path:
        """What the cluster was asked to be."""
        return self.folder / "cluster.json"

    @property
    def plan(self) -> Path:
        """What the supervisor runs."""
        return self.folder / "plan.json"

    @property
    def supervisor(self) -> Path:
        """The supervisor's process id and start time."""
        return self.folder / "supervisor.json"

    @property
    def logs(self) -> Path:
        """One file per component."""
        return self.folder / "logs"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.folder / "pki"

    @property
    def etcd(self) -> Path:
        """The cluster's data."""
        return self.folder / "etcd"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def component_kubeconfig(self, component: str) -> Path:
        """The kubeconfig of one component."""
        return self.pki / f"{component}.kubeconfig"

    def config(self, component: str) -> Path:
        """The configuration file of one component."""
        return self.folder / "config" / component

    def node(self, letter: str) -> NodeLayout:
        """The files of node `a` or `b`."""
        return NodeLayout(self.folder / f"node-{letter}")
