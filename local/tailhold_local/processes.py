"""Finds and ends the processes of a cluster, and only those."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout
from tailhold_local.machine import search_path
from tailhold_local.plan import Plan

MODULE = "tailhold_local.supervisor"


@dataclass(frozen=True)
class Identity:
    """A process that cannot be taken for another: ids are used again, start times are not."""

    pid: int
    started: float

    @staticmethod
    def of(process: psutil.Process) -> "Identity":
        """The identity of a process that runs now."""
        return Identity(process.pid, process.create_time())

    def process(self) -> psutil.Process | None:
        """The process, if it is still the same one."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 0.05
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def is_supervisor(command: list[str], plan: Path) -> bool:
    """Whether a command line is that of the supervisor which runs `plan`."""
    return _runs_supervisor(command) and command[-1] == str(plan)


def start_supervisor(layout: Layout) -> Identity:
    """Start the supervisor in namespaces of its own, detached from this terminal."""
    namespaces = ("unshare", "--fork", "--pid", "--mount-proc", "--propagation", "private")
    network = f"--net={layout.node('a').network}"
    command = ["nsenter", network, *namespaces, sys.executable, "-m", MODULE, str(layout.plan)]
    with (layout.logs / "supervisor.log").open("ab") as log:
        launcher = subprocess.Popen(
            command,
            cwd="/",
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return _wait_for_supervisor(layout, launcher)


def find_supervisor(layout: Layout) -> psutil.Process | None:
    """The running supervisor: the one noted, or, if its starter was cut off before the note, found."""
    if layout.supervisor.exists():
        noted = Identity(**json.loads(layout.supervisor.read_text())).process()
        if noted:
            return noted
    return _search(layout.plan)


def supervisors() -> tuple[psutil.Process, ...]:
    """The supervisors of all clusters on this machine, wherever they keep their state."""
    return tuple(each for each in psutil.process_iter() if _runs_supervisor(_command(each)))


def home_of(command: list[str]) -> Path | None:
    """The folder of the cluster, if a command line is that of a supervisor."""
    return Path(command[-1]).parent if _runs_supervisor(command) else None


def homes() -> tuple[Path, ...]:
    """The folders of all clusters that run on this machine, wherever they keep their state."""
    found = (home_of(_command(each)) for each in psutil.process_iter())
    return tuple(sorted({home for home in found if home}))


def components(supervisor: psutil.Process, plan: Plan) -> dict[str, Identity]:
    """The components that run now, by name."""
    found = {}
    for child in supervisor.children():
        name = name_of(_command(child), plan)
        if name:
            found[name] = Identity.of(child)
    return found


def name_of(command: list[str], plan: Plan) -> str | None:
    """The component that a command line is of: its prefixes, such as nsenter, are gone once it runs."""
    for component in plan.components:
        if command and component.command[-len(command) :] == tuple(command):
            return component.name
    return None


def kill(supervisor: psutil.Process, timeout: float = 20) -> None:
    """End the supervisor; the kernel ends everything else in its process namespace with it."""
    try:
        launcher = supervisor.parent()
        supervisor.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return
    waited = [supervisor, *([launcher] if launcher and launcher.name() == "unshare" else [])]
    _, alive = psutil.wait_procs(waited, timeout=timeout)
    if alive:
        raise LocalError(f"process {alive[0].pid} of the cluster does not end: look at it with `ps`")


def _environment() -> dict[str, str]:
    """Little: a proxy in the caller's environment, say, would lead the API server astray."""
    package_folder = str(Path(__file__).parents[1])
    python_path = os.pathsep.join(filter(None, (package_folder, os.environ.get("PYTHONPATH"))))
    return {"PATH": search_path(), "HOME": "/root", "LANG": "C.UTF-8", "PYTHONPATH": python_path}


def _wait_for_supervisor(layout: Layout, launcher: "subprocess.Popen[bytes]") -> Identity:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and launcher.poll() is None:
        for child in psutil.Process(launcher.pid).children():
            if is_supervisor(_command(child), layout.plan):
                identity = Identity.of(child)
                layout.supervisor.write_text(json.dumps(asdict(identity)))
                return identity
        time.sleep(0.02)
    raise LocalError(f"the cluster's supervisor did not start; see {layout.logs / 'supervisor.log'}")


def _runs_supervisor(command: list[str]) -> bool:
    return command[-3:-1] == ["-m", MODULE] and Path(command[0]).name.startswith("python")


def _search(plan: Path) -> psutil.Process | None:
    for process in supervisors():
        if is_supervisor(_command(process), plan):
            return process
    return None


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
