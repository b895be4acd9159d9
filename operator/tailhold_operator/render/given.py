"""What `spec.pod` adds to server pods and index Jobs alike."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from tailhold_api.pod import Pod
from tailhold_api.security import Ids, SecurityContext
from tailhold_api.volumes import EmptyVolume, Medium, Volume
from tailhold_operator.kinds import Manifest
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.quantity import mebibytes

_USER = 10001
"""The user of the images."""


def metadata(rules: Pod, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> Manifest:
    """Labels and annotations of a pod: our labels stand above the given ones, the given annotations above ours."""
    told = {**(annotations or {}), **rules.annotations}
    return {"labels": {**rules.labels, **labels}} | ({"annotations": told} if told else {})


def account(rules: Pod, identity: Identity) -> str:
    """Who the pods are."""
    return rules.service_account_name or identity.child()


def variables(rules: Pod, ours: Iterable[Manifest]) -> list[Manifest]:
    """The given ones take the place of the operator's settings of the same name."""
    every = [*ours, *map(wire, rules.env)]
    return list({each["name"]: each for each in every}.values())


def variables_from(rules: Pod) -> list[Manifest]:
    """Objects whose keys become variables."""
    return [wire(each) for each in rules.env_from]


def volumes(rules: Pod) -> list[Manifest]:
    """The given volumes; the prefix keeps their names apart from ours."""
    return [{"name": _name(each), **_source(each)} for each in rules.volumes]


def mounts(rules: Pod) -> list[Manifest]:
    """Where they are mounted."""
    return [_mount(each) for each in rules.volumes]


def security(context: SecurityContext) -> Manifest:
    """Whom the pod runs as, at the Pod Security level "restricted"."""
    found: Manifest = {
        "runAsNonRoot": True,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if context.ids is Ids.FIXED:
        found |= {"runAsUser": _USER, "runAsGroup": 0, "fsGroup": _USER}
    return found | {name: each for name, each in wire(context).items() if name != "ids"}


def wire(model: BaseModel) -> dict[str, Any]:
    """As it stands in a manifest: what is left out is not written, since the API server would drop it."""
    return model.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _name(volume: Volume) -> str:
    return f"extra-{volume.name}"


def _source(volume: Volume) -> Manifest:
    if volume.empty_dir:
        return {"emptyDir": _empty(volume.empty_dir)}
    if volume.pvc:
        read_only = {"readOnly": True} if volume.read_only else {}
        return {"persistentVolumeClaim": wire(volume.pvc) | read_only}
    return {name: each for name, each in wire(volume).items() if name in ("configMap", "secret")}


def _empty(empty: EmptyVolume) -> Manifest:
    medium = {"medium": "Memory"} if empty.medium is Medium.MEMORY else {}
    return {"sizeLimit": mebibytes(empty.size_mebibytes), **medium}


def _mount(volume: Volume) -> Manifest:
    mount = {"name": _name(volume), "mountPath": volume.mount_path}
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    read_only = volume.read_only or volume.config_map or volume.secret
    return mount | ({"readOnly": True} if read_only else {})
