"""Volumes of the user's own in our pods."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, restart
from tailhold_api.grammar import FOLDER, NAME, SUB_PATH, WORD, one_of

OWN_FOLDERS = (
    "/dev/shm",  # noqa: S108 - a mount point
    "/dev/termination-log",
    "/etc/tailhold",
    "/opt/tailhold",
    "/proc",
    "/sys",
    "/var/cache/tailhold",
    "/var/lib/tailhold",
)
"""Folders that a mount of the user's may neither be in nor hide."""


class ConfigMapVolume(Model):
    """A ConfigMap of the pipeline's namespace: each key is a file."""

    name: str = restart(**NAME)
    """The ConfigMap's name."""
    optional: bool = restart(False)
    """Start without it when it is not there."""


class SecretVolume(Model):
    """A Secret of the pipeline's namespace: each key is a file."""

    secret_name: str = restart(**NAME)
    """The Secret's name."""
    optional: bool = restart(False)
    """Start without it when it is not there."""


class ClaimVolume(Model):
    """A persistent volume claim of the pipeline's namespace."""

    claim_name: str = restart(**NAME)
    """The claim's name. Pods on more than one node need a claim that can be mounted by all."""


class Medium(StrEnum):
    """What an empty folder is made of."""

    DISK = "Disk"
    MEMORY = "Memory"


class EmptyVolume(Model):
    """A folder that is empty at the start and gone with the pod."""

    size_mebibytes: int = restart(ge=1, le=1048576)
    """Size limit. A pod that writes more is evicted."""
    medium: Medium = restart(Medium.DISK)
    """`Memory` is faster, and what is written counts within `placement.memoryMebibytes`."""


class Volume(Model):
    """A volume and where it is mounted. Exactly one of `configMap`, `secret`, `pvc` and `emptyDir` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "configMap",
            "secret",
            "pvc",
            "emptyDir",
            accepted={"name": "company-ca", "mountPath": "/etc/company", "configMap": {"name": "company-ca"}},
            refused={"name": "company-ca", "mountPath": "/etc/company"},
        ),
        Rule(
            f"{list(OWN_FOLDERS)!r}.all(own, self.mountPath != own && !self.mountPath.startsWith(own + '/')"
            " && !own.startsWith(self.mountPath + '/'))",
            f"`mountPath` may be neither in nor above one of {', '.join(f'`{each}`' for each in OWN_FOLDERS)}",
            {"name": "a", "mountPath": "/var/lib/company", "emptyDir": {"sizeMebibytes": 1}},
            {"name": "a", "mountPath": "/var/lib", "emptyDir": {"sizeMebibytes": 1}},
        ),
    )

    name: str = restart(**WORD)
    """Names the volume; in the pod it is `extra-` and this name."""
    mount_path: str = restart(**FOLDER)
    """Where it is found in the container, without `.`, `..` or a slash at the end."""
    sub_path: str | None = restart(None, **SUB_PATH)
    """One file or folder of the volume instead of all, as one key of a ConfigMap. It is not brought up to date in
    running pods."""
    read_only: bool = restart(False)
    """Mount it only for reading. ConfigMaps and Secrets always are."""
    config_map: ConfigMapVolume | None = None
    """From a ConfigMap, as certificates of a company."""
    secret: SecretVolume | None = None
    """From a Secret, as keys and passwords in files."""
    pvc: ClaimVolume | None = None
    """From a persistent volume claim."""
    empty_dir: EmptyVolume | None = None
    """An empty folder: the root file system is read-only, and programs that expect `/tmp` need one there."""
