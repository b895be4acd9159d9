"""A Debian base image made from Debian's own packages, for machines that reach no image registry."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tailhold_local import images
from tailhold_local.errors import LocalError
from tailhold_local.layout import cache_root
from tailhold_local.machine import search_path
from tailhold_local.progress import Progress

RECIPE = 1
"""To be raised with every change of what the image holds."""

PACKAGES = ("ca-certificates", "python3", "python3-venv")

PRUNED = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
)
"""Emptied: nothing that runs in a container reads them."""

DOCKERFILE = 'FROM scratch\nADD base.tar /\nENV LANG=C.UTF-8\nCMD ["python3"]\n'


def ensure_base_image(progress: Progress | None = None) -> str:
    """The name of the base image, made and kept if it is not in the store: pass it as build argument BASE."""
    suite = _suite(Path("/etc/os-release").read_text())
    tag = f"localhost/tailhold/base:{suite}-{RECIPE}"
    archive = cache_root() / "images" / f"base-{suite}-{RECIPE}.tar"
    with images.alone():
        if not archive.exists():
            with (progress or Progress()).step(f"building the base image {tag}, kept for later runs"):
                _build(suite, tag, archive)
        elif not images.has(tag):
            images.restore(archive, tag)
    return tag


def _build(suite: str, tag: str, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".base-", dir=archive.parent) as folder:
        root, context = Path(folder, "root"), Path(folder, "context")
        context.mkdir()
        _debootstrap(suite, root, archive.parent / "debootstrap.log")
        for name in PRUNED:
            _empty(root / name)
        tar = [
            "tar",
            "--numeric-owner",
            "--sort=name",
            "-C",
            str(root),
            "-cf",
            str(context / "base.tar"),
            ".",
        ]
        subprocess.run(tar, check=True)
        (context / "Dockerfile").write_text(DOCKERFILE)
        images.build(context, context / "Dockerfile", tag, archive)


def _debootstrap(suite: str, root: Path, log: Path) -> None:
    options = ("--variant=minbase", f"--include={','.join(PACKAGES)}")
    command = ["debootstrap", *options, suite, str(root), _mirror(suite)]
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=output, env={"PATH": search_path()}, check=False)
    if done.returncode:
        end = log.read_text(errors="replace").strip()[-500:]
        raise LocalError(f"debootstrap of {suite} failed; the whole log is {log}:\n{end}")


def _suite(os_release: str) -> str:
    fields = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    if "VERSION_CODENAME" not in fields:
        raise LocalError("the base image is made from the packages of Debian or Ubuntu, and this machine has neither")
    return fields["VERSION_CODENAME"].strip('"')


def _mirror(suite: str) -> str:
    """The mirror that this machine's apt is set to use."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        f"Codename: {suite}",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    if not found:
        raise LocalError(f"apt knows no mirror of {suite}: add one to /etc/apt/sources.list, then `apt-get update`")
    return found[0]


def _empty(folder: Path) -> None:
    for child in folder.iterdir() if folder.is_dir() else ():
        shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()
