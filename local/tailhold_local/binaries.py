"""The programs of a cluster, built once from Go modules and kept by version.

A build goes to a folder of its own beside the cache and is renamed when whole, so a build that was cut off
is done again by the next run, on top of what Go's own cache already holds.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailhold_local import go
from tailhold_local.errors import LocalError
from tailhold_local.layout import cache_root
from tailhold_local.locks import locked
from tailhold_local.progress import Progress

_GO = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off", "GOGC": "off", "GOMEMLIMIT": "2GiB"}
"""The compiler collects no garbage before it needs 2 GiB: a third of its time."""
MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True)
class Build:
    """One Go module of ours and the commands it pins."""

    name: str
    module: str
    commands: tuple[tuple[str, str], ...]
    """Program names and the packages that they are built from."""

    @property
    def folder(self) -> Path:
        """Where go.mod lies."""
        return MODULES / self.name


BUILDS = (
    Build(
        "kubernetes",
        "k8s.io/kubernetes",
        tuple(
            (name, f"k8s.io/kubernetes/cmd/{name}")
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubectl",
            )
        ),
    ),
    Build("etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),)),
    Build("helm", "helm.sh/helm/v4", (("helm", "helm.sh/helm/v4/cmd/helm"),)),
    Build("coredns", "github.com/coredns/coredns", (("coredns", "tailhold.dev/local/coredns"),)),
)
"""What a cluster is made of."""
JAEGER = Build("jaeger", "github.com/jaegertracing/jaeger", (("jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger"),))
"""Keeps traces. No part of a cluster: built where it is asked for, in five minutes on two cores."""


def required_version(go_mod: str, module: str) -> str:
    """The version of `module` that the text of a go.mod requires."""
    found = re.search(rf"^(?:require\s+|\s+){re.escape(module)}\s+(v\S+)", go_mod, re.MULTILINE)
    if not found:
        raise ValueError(f"go.mod does not require {module}")
    return found[1]


def link_flags(build: Build, version: str) -> str:
    """The linker's flags: Kubernetes reports a development version unless it is told its own."""
    if build.name != "kubernetes":
        return "-s -w"
    major, minor, _ = version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    told = [f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items()]
    return " ".join(["-s -w", *told])


@dataclass(frozen=True)
class Binaries:
    """Where the built programs lie."""

    folders: dict[str, Path]

    def __getitem__(self, program: str) -> str:
        return str(self.folders[program] / program)


def located(builds: Sequence[Build] = BUILDS) -> Binaries:
    """Where each program is, or will be once built."""
    root = cache_root() / "bin"
    return Binaries({name: _folder(build, root) for build in builds for name, _ in build.commands})


def missing(builds: Sequence[Build] = BUILDS) -> tuple[Build, ...]:
    """What is not built yet."""
    root = cache_root() / "bin"
    return tuple(build for build in builds if not _complete(build, _folder(build, root)))


def ensure(progress: Progress, builds: Sequence[Build] = BUILDS) -> Binaries:
    """Build what is missing and return where everything is."""
    if missing(builds):
        with locked(cache_root() / ".build.lock"):
            toolchain = go.toolchain(cache_root(), progress)
            for build in missing(builds):
                _build(build, toolchain, progress)
    return located(builds)


def _version(build: Build) -> str:
    return required_version((build.folder / "go.mod").read_text(), build.module)


def _folder(build: Build, root: Path) -> Path:
    return root / f"{build.name}-{_version(build)}"


def _complete(build: Build, folder: Path) -> bool:
    return all((folder / name).is_file() for name, _ in build.commands)


def _build(build: Build, toolchain: str, progress: Progress) -> None:
    root, log = cache_root() / "bin", cache_root() / "log" / f"{build.name}.log"
    final, partial = _folder(build, root), root / f".{build.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    title = f"building {build.name} {_version(build)}, kept for later runs"
    with progress.step(title), log.open("w") as output:
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", link_flags(build, _version(build))]
        command = [
            toolchain,
            "build",
            *flags,
            "-o",
            _output(build, partial),
            *(package for _, package in build.commands),
        ]
        _run(command, build.folder, output.fileno(), log)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def _output(build: Build, folder: Path) -> str:
    """A file for one program; for several, built at once so that no core idles while one is linked, their folder."""
    return str(folder / build.commands[0][0]) if len(build.commands) == 1 else f"{folder}/"


def _run(command: list[str], folder: Path, output: int, log: Path) -> None:
    env = {**os.environ, **_GO}
    done = subprocess.run(command, cwd=folder, env=env, stdout=output, stderr=output, check=False)
    if done.returncode:
        end = log.read_text(errors="replace").strip()[-800:]
        raise LocalError(f"`{' '.join(command)}` failed; its log is {log} and ends:\n{end}")
