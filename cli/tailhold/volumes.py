"""Folders of this machine as the persistent volume claims that the examples name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def manifests(folders: Mapping[str, Path], namespace: str) -> list[dict[str, Any]]:
    """A volume and its claim for each folder, by the claim's name; the volume outlives the claim."""
    return [
        item for name, folder in folders.items() for item in (_volume(folder, name, namespace), _claim(name, namespace))
    ]


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
