"""Runs the real helm, and reads what it renders."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "tailhold"
NAMESPACE = "tailhold-system"


@dataclass(frozen=True)
class Rendered:
    """What helm would send to the API server."""

    manifests: tuple[dict[str, Any], ...]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [manifest for manifest in self.manifests if manifest["kind"] == kind]

    def one(self, kind: str) -> dict[str, Any]:
        (manifest,) = self.of(kind)
        return manifest

    @property
    def pod(self) -> dict[str, Any]:
        return dict(self.one("Deployment")["spec"]["template"])

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["spec"]["containers"]
        return dict(container)

    @property
    def env(self) -> dict[str, str]:
        return {entry["name"]: entry.get("value") for entry in self.container["env"]}


@dataclass(frozen=True)
class Helm:
    """The program, and a folder for values files."""

    program: str
    folder: Path

    def run(self, *arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        file = self.folder / "values.json"
        file.write_text(json.dumps(values or {}))
        command = [self.program, *arguments, "--values", str(file)]
        env = {**os.environ, "KUBECONFIG": "/nonexistent", "HELM_CACHE_HOME": str(self.folder)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    def render(self, *arguments: str, values: dict[str, Any] | None = None) -> Rendered:
        done = self.run("template", "r", str(CHART), "--namespace", NAMESPACE, *arguments, values=values)
        assert not done.returncode, done.stderr
        return Rendered(tuple(filter(None, yaml.load_all(done.stdout, UniqueKeys))))

    def refusal(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        done = self.run("template", "r", str(CHART), *arguments, values=values)
        assert done.returncode, "was not refused"
        return done.stderr

    def notes(self, *arguments: str, values: dict[str, Any] | None = None) -> str:
        done = self.run("install", "r", str(CHART), "--dry-run=client", *arguments, values=values)
        assert not done.returncode, done.stderr
        return done.stdout.partition("\nNOTES:\n")[2]


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice, as the API server does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is given twice: {sorted(map(str, keys))}"
        return super().construct_mapping(node, deep)
