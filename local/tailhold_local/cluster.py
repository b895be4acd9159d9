"""A handle on a running cluster: its kubeconfig, programs, images, stand-in GPUs and logs."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_local import binaries, processes
from tailhold_local.addresses import Addresses
from tailhold_local.api import Api
from tailhold_local.errors import LocalError
from tailhold_local.gpus import GpuControl
from tailhold_local.layout import Layout, state_root
from tailhold_local.plan import Plan, Settings
from tailhold_local.processes import Identity


@dataclass(frozen=True)
class Cluster:
    """One cluster on this machine."""

    layout: Layout
    settings: Settings

    @staticmethod
    def find(name: str) -> "Cluster":
        """The cluster of this name, which must have been started."""
        layout = Layout(state_root(), name)
        if not layout.settings.exists():
            raise LocalError(f"there is no cluster {name!r} here: `tailhold up --name {name}` starts one")
        return Cluster(layout, Settings.from_json(layout.settings.read_text()))

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.layout.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def logs(self) -> Path:
        """The folder with one log per component, and the API server's audit.log."""
        return self.layout.logs

    @property
    def addresses(self) -> Addresses:
        """The cluster's ranges and addresses."""
        return Addresses(self.settings.slot)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(self.addresses.node(letter).name for letter in self.settings.letters)

    @property
    def plan(self) -> Plan:
        """What the supervisor runs."""
        return Plan.from_json(self.layout.plan.read_text())

    @property
    def api(self) -> Api:
        """A reader of the API server."""
        return Api(self.layout, self.addresses)

    @property
    def env(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG, our programs on the PATH and no proxy in between."""
        built = binaries.located()
        folders = [str(Path(built[program]).parent) for program in ("kubectl", "helm")]
        path = os.pathsep.join((*folders, os.environ.get("PATH", "")))
        direct = ",".join(filter(None, (os.environ.get("NO_PROXY"), self.addresses.everything)))
        changes = {"KUBECONFIG": str(self.kubeconfig), "PATH": path, "NO_PROXY": direct, "no_proxy": direct}
        return {**os.environ, **changes}

    @property
    def shell_line(self) -> str:
        """What a person's shell runs to have kubectl, helm and this environment's programs speak to the cluster."""
        built = binaries.located()
        folders = [Path(sys.executable).parent, *(Path(built[program]).parent for program in ("kubectl", "helm"))]
        path = os.pathsep.join(map(str, (*folders, "$PATH")))
        return f'export KUBECONFIG="{self.kubeconfig}" PATH="{path}"'

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """What kubectl prints; LocalError with its message if it fails."""
        return self._run("kubectl", arguments, stdin, timeout)

    def helm(self, *arguments: str, stdin: str | None = None, timeout: float = 300) -> str:
        """What helm prints; LocalError with its message if it fails."""
        return self._run("helm", arguments, stdin, timeout)

    def load_image(self, archive: Path, *, node: str | None = None) -> None:
        """Bring the images of an OCI archive to every node, or to one."""
        for name in (node,) if node else self.nodes:
            self._ctr(name, "images", "import", str(archive))

    def image_ids(self, node: str = "node-a") -> dict[str, str]:
        """The images a node has: names and the digests of their manifests."""
        rows = [line.split() for line in self._ctr(node, "images", "ls").splitlines()[1:]]
        return {row[0]: row[2] for row in rows if not row[0].startswith("sha256:")}

    def gpus(self, node: str = "node-a") -> GpuControl:
        """The control of a node's stand-in GPUs."""
        return GpuControl(self.layout.node(_letter(node)).gpus)

    def pids(self) -> dict[str, Identity]:
        """The components that run, such as `kubelet-a`, as this machine's process ids."""
        supervisor = processes.find_supervisor(self.layout)
        return processes.components(supervisor, self.plan) if supervisor else {}

    def inside(self, *command: str, node: str = "node-a") -> "subprocess.CompletedProcess[str]":
        """Run a command in a node's network, as its programs see it."""
        network = self.layout.node(_letter(node)).network
        entered = ["nsenter", f"--net={network}", *command]
        return subprocess.run(entered, capture_output=True, text=True, check=False)

    def tail(self, component: str, lines: int = 20) -> str:
        """The end of a component's log."""
        log = self.logs / f"{component}.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def _ctr(self, node: str, *arguments: str) -> str:
        socket = self.layout.node(_letter(node)).containerd_socket
        command = ["ctr", "--address", str(socket), "--namespace", "k8s.io", *arguments]
        return _output(command, os.environ, None, timeout=300)

    def _run(self, program: str, arguments: tuple[str, ...], stdin: str | None, timeout: float) -> str:
        return _output([binaries.located()[program], *arguments], self.env, stdin, timeout)


def _letter(node: str) -> str:
    return node.removeprefix("node-")


def _output(command: list[str], env: Mapping[str, str], stdin: str | None, timeout: float) -> str:
    shown = " ".join([Path(command[0]).name, *command[1:]])
    try:
        done = subprocess.run(
            command, env=env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as expired:
        raise LocalError(f"`{shown}` did not end within {timeout:.0f} s") from expired
    if done.returncode:
        raise LocalError(f"`{shown}` failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
