"""Whether this machine can carry a cluster, and what to do if not."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_local.errors import LocalError
from tailhold_local.progress import Progress

GIB = 1 << 30
MEMORY = 4 * GIB
DISK = 5 * GIB
DISK_TO_BUILD = 12 * GIB
NO_ROOT = "the local cluster needs root (namespaces, mounts, cgroups): run the command with sudo"

PROGRAMS: Mapping[str, str] = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "buildah": "buildah",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "debootstrap": "debootstrap",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/bin/busybox": "busybox-static",
}
"""Which Debian package brings each program that a cluster runs."""


@dataclass(frozen=True)
class Machine:
    """What was found."""

    linux: bool
    root: bool
    memory: int
    disk: int


def objection(machine: Machine, disk_needed: int) -> str | None:
    """Why a cluster cannot run here, with the next step; None if it can."""
    if not machine.linux:
        return "the local cluster needs Linux: run it on a Linux machine, or use a cluster that you have"
    if not machine.root:
        return NO_ROOT
    if machine.memory < MEMORY:
        return (
            f"the local cluster needs {MEMORY / GIB:.0f} GiB of available memory, this machine has"
            f" {machine.memory / GIB:.1f}: stop something, such as a cluster with `tailhold down`"
        )
    if machine.disk < disk_needed:
        return (
            f"the local cluster needs {disk_needed / GIB:.0f} GiB of free disk, this machine has"
            f" {machine.disk / GIB:.1f}: free some, or set TAILHOLD_CACHE and TAILHOLD_STATE to a larger disk"
        )
    return None


def missing_packages(present: Mapping[str, bool]) -> tuple[str, ...]:
    """The Debian packages that bring the programs that are not present."""
    return tuple(sorted({PROGRAMS[program] for program, there in present.items() if not there}))


def available_memory(meminfo: str) -> int:
    """Bytes of available memory, read from the text of /proc/meminfo."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024


def look(disk: Path) -> Machine:
    """Read what this machine has; `disk` is the folder that must have room."""
    linux = os.uname().sysname == "Linux"
    memory = available_memory(Path("/proc/meminfo").read_text()) if linux else 0
    existing = next(folder for folder in (disk, *disk.parents) if folder.exists())
    return Machine(linux, os.geteuid() == 0, memory, shutil.disk_usage(existing).free)


def require_root() -> None:
    """Refuse a user who may not make or remove a cluster."""
    if os.geteuid() != 0:
        raise LocalError(NO_ROOT)


def check(disk: Path, disk_needed: int) -> None:
    """Refuse a machine that cannot carry a cluster."""
    reason = objection(look(disk), disk_needed)
    if reason:
        raise LocalError(reason)


def install_missing(progress: Progress) -> None:
    """Bring the programs a cluster runs from Debian's packages."""
    missing = missing_packages({program: _present(program) for program in PROGRAMS})
    if not missing:
        return
    if not shutil.which("apt-get"):
        names = " ".join(missing)
        raise LocalError(f"programs of these Debian packages are missing, and there is no apt-get: {names}")
    with progress.step(f"installing {' '.join(missing)}"):
        _apt_get("update")
        _apt_get("install", "--yes", "--no-install-recommends", *missing)


def _present(program: str) -> bool:
    return shutil.which(program, path=search_path()) is not None


def search_path() -> str:
    """The caller's PATH and the folders of system programs, which a plain user's PATH may lack."""
    system = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
    return os.pathsep.join((os.environ.get("PATH", ""), *system))


def _apt_get(*arguments: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-qq", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"apt-get {' '.join(arguments)} failed: {done.stderr.strip()[-500:]}")
