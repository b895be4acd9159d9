"""Folders of this machine as the persistent volume claims that the examples name."""

from pathlib import Path
from typing import Any

CLAIMS = ("models", "documents", "snapshots")
"""The claims of examples/ragpipeline.yaml."""


def manifests(folder: Path, namespace: str) -> list[dict[str, Any]]:
    """A volume and its claim for each folder below `folder`; the volume outlives the claim."""
    return [item for name in CLAIMS for item in (_volume(folder / name, name, namespace), _claim(name, namespace))]


def _volume(folder: Path, name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": name},
        },
    }


def _claim(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": {"storage": "20Gi"}},
        },
    }
