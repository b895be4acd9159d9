"""Installing Tailhold on a cluster: images, chart, and on the local one the environment that its pods mount."""

import json
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailhold.target import Target

RELEASE = "tailhold"
NAMESPACE = "tailhold-system"
MOUNT_POINT = "/opt/tailhold/site"
"""Where the server's image looks for dependencies that it does not carry."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image as the chart's values name it."""

    repository: str
    tag: str

    @classmethod
    def parse(cls, reference: str) -> "Image":
        """From `registry/repository:tag`."""
        repository, _, tag = reference.rpartition(":")
        return cls(repository, tag)

    def values(self, pull_policy: str) -> dict[str, str]:
        """The chart's block for it."""
        registry, _, repository = self.repository.partition("/")
        return {"registry": registry, "repository": repository, "tag": self.tag, "pullPolicy": pull_policy}


def local_values(operator: Image, server: Image, *, mounted: bool) -> dict[str, Any]:
    """Chart values for the local cluster: images that only it has, and with `mounted` this environment's packages."""
    return {
        "image": operator.values("Never"),
        "server": {"image": server.values("Never")} | (_mounted_packages() if mounted else {}),
    }


def _mounted_packages() -> dict[str, Any]:
    packages = sysconfig.get_paths()["purelib"]
    volume = {"name": "packages", "hostPath": {"path": packages, "type": "Directory"}}
    return {
        "extraVolumes": [volume],
        "extraVolumeMounts": [{"name": "packages", "mountPath": MOUNT_POINT, "readOnly": True}],
    }


def install(target: Target, chart: Path, values: dict[str, Any], *, timeout_seconds: int = 180) -> None:
    """Install or upgrade the release and wait until the operator is ready. Raises CommandError."""
    file = chart.parent / f".values-{RELEASE}.json"
    file.write_text(json.dumps(values))
    try:
        target.helm(
            "upgrade", "--install", RELEASE, str(chart), "--namespace", NAMESPACE, "--create-namespace",
            "--values", str(file), "--wait", "--timeout", f"{timeout_seconds}s",
        )  # fmt: skip
    finally:
        file.unlink(missing_ok=True)
