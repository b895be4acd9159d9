"""The control groups of a cluster: one folder of its own in every hierarchy."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tailhold_local.errors import LocalError

UNIFIED_CONTROLLERS = "+cpuset +cpu +io +memory +pids"
SHARES_PER_CORE = 1024


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups."""

    folder: Path
    unified: bool
    controllers: tuple[str, ...]


def hierarchies(mounts: str) -> tuple[Hierarchy, ...]:
    """The trees that the text of /proc/mounts names."""
    rows = [line.split() for line in mounts.splitlines()]
    found = [row for row in rows if len(row) > 3 and row[2] in ("cgroup", "cgroup2")]
    return tuple(Hierarchy(Path(row[1]), row[2] == "cgroup2", tuple(row[3].split(","))) for row in found)


def name_of(cluster: str) -> str:
    """The group that holds everything of a cluster."""
    return f"tailhold-{cluster}"


def create(cluster: str, nodes: tuple[str, ...]) -> None:
    """Make the cluster's groups: `system` for its programs and one for each node's pods."""
    trees = _mounted()
    only_unified = all(tree.unified for tree in trees)
    for tree in trees:
        if tree.unified and only_unified:
            _create_unified(tree.folder / name_of(cluster), nodes)
        elif not tree.unified:
            _create_v1(tree, tree.folder / name_of(cluster), nodes)


def enter_system(cgroup: str) -> None:
    """Move this process, and so all it will start, to the cluster's own groups."""
    for tree in _mounted():
        procs = tree.folder / cgroup / "system" / "cgroup.procs"
        if procs.exists():
            procs.write_text("0")


def remove(cluster: str, timeout: float = 10) -> None:
    """Remove the cluster's groups; its processes are dead or dying."""
    deadline = time.monotonic() + timeout
    while remains := [folder for folder in _folders(cluster) if not _remove_tree(folder)]:
        if time.monotonic() > deadline:
            raise LocalError(f"processes are still in {remains[0]}: end them, then run `tailhold down` again")
        time.sleep(0.1)


def leftovers(cluster: str) -> tuple[Path, ...]:
    """The cluster's groups that still exist."""
    return tuple(_folders(cluster))


def _mounted() -> tuple[Hierarchy, ...]:
    return hierarchies(Path("/proc/mounts").read_text())


def _folders(cluster: str) -> list[Path]:
    return [folder for tree in _mounted() if (folder := tree.folder / name_of(cluster)).exists()]


def _create_v1(tree: Hierarchy, top: Path, nodes: tuple[str, ...]) -> None:
    for folder in (top, top / "system", *(top / node for node in nodes)):
        folder.mkdir(exist_ok=True)
        if "cpuset" in tree.controllers:
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((folder.parent / file).read_text())
        if "cpu" in tree.controllers:
            (folder / "cpu.shares").write_text(str(SHARES_PER_CORE * (os.cpu_count() or 1)))


def _create_unified(top: Path, nodes: tuple[str, ...]) -> None:
    (top.parent / "cgroup.subtree_control").write_text(UNIFIED_CONTROLLERS)
    top.mkdir(exist_ok=True)
    (top / "cgroup.subtree_control").write_text(UNIFIED_CONTROLLERS)
    for folder in (top / "system", *(top / node for node in nodes)):
        folder.mkdir(exist_ok=True)


def _remove_tree(folder: Path) -> bool:
    for current, _, _ in os.walk(folder, topdown=False):
        try:
            Path(current).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True
