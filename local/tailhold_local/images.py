"""Builds images with buildah, in a store of our own, and keeps them as OCI archives."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tailhold_local.errors import LocalError
from tailhold_local.layout import cache_root
from tailhold_local.locks import locked
from tailhold_local.machine import search_path
from tailhold_local.node import PAUSE
from tailhold_local.progress import Progress

PAUSE_FILES = 'FROM scratch\nCOPY busybox /busybox\nENTRYPOINT ["/busybox", "sleep", "2147483647"]\n'
BUSYBOX = Path("/bin/busybox")


def buildah(*arguments: str) -> str:
    """Run buildah on a store of our own, without the isolation that needs a container engine."""
    command = ["buildah", *_storage(cache_root() / "images"), *arguments]
    env = {**os.environ, "BUILDAH_ISOLATION": "chroot", "PATH": search_path()}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        end = (done.stderr or done.stdout).strip()[-800:]
        raise LocalError(f"buildah {' '.join(arguments)} failed: {end}")
    return done.stdout


def alone(*, wait: bool = True) -> AbstractContextManager[None]:
    """Held by whoever changes the store: what one build has not tagged yet, another would take for waste."""
    return locked(cache_root() / ".images.lock", wait=wait)


def tags() -> tuple[str, ...]:
    """The images of the store that have a name."""
    return tuple(buildah("images", "--format", "{{.Name}}:{{.Tag}}").split())


def has(tag: str) -> bool:
    """Whether the store holds the image."""
    return tag in tags()


def end_builds() -> None:
    """Remove the containers of builds that were cut off, and so their mounts; the store is held alone."""
    if buildah("containers", "--quiet").strip():
        buildah("rm", "--all")


def prune() -> None:
    """Remove layers that no named image stands on; the store is held alone."""
    end_builds()
    buildah("rmi", "--prune")


def restore(archive: Path, tag: str) -> None:
    """Bring an image back into the store from its archive."""
    image = buildah("pull", "--quiet", f"oci-archive:{archive}").strip()
    buildah("tag", image, tag)


def ensure_pause_image(progress: Progress) -> Path:
    """The archive of the image that holds each pod's namespaces."""
    archive = cache_root() / "images" / f"{PAUSE.split('/')[-1].replace(':', '-')}.tar"
    if archive.exists():
        return archive
    with alone(), progress.step("building the pause image"), _context() as folder:
        (folder / "Dockerfile").write_text(PAUSE_FILES)
        shutil.copy(BUSYBOX, folder / "busybox")
        build(folder, folder / "Dockerfile", PAUSE, archive)
    return archive


def build(context: Path, dockerfile: Path, tag: str, archive: Path, **arguments: str) -> Path:
    """Build an image and write it as an OCI archive, whole or not at all."""
    build_arguments = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    buildah("build", "--layers", *build_arguments, "--tag", tag, "--file", str(dockerfile), str(context))
    return export(tag, archive)


def export(tag: str, archive: Path) -> Path:
    """Write an image of the store as an OCI archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    partial = archive.with_name(f".{archive.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    buildah("push", "--quiet", tag, f"oci-archive:{partial}:{tag}")
    partial.rename(archive)
    return archive


def _storage(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    places = ["--root", str(folder / "store"), "--runroot", str(folder / "run")]
    return [*places, "--storage-driver", "vfs" if _on_overlay(folder) else "overlay"]


def _on_overlay(folder: Path) -> bool:
    """Whether the folder lies on an overlay, as in a container: such a folder cannot carry another."""
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    return "overlay" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def _context() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tailhold-") as folder:
        yield Path(folder)
