"""What server pods and index Jobs have in common: volumes, environment and security."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tailhold_api import names
from tailhold_api.pod import Pod
from tailhold_operator.kinds import Manifest
from tailhold_operator.render import given
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.quantity import mebibytes
from tailhold_operator.render.setup import Setup

_CACHES = {
    "HOME": "",
    "XDG_CACHE_HOME": "/xdg-cache",
    "XDG_CONFIG_HOME": "/xdg-config",
    "XDG_DATA_HOME": "/xdg-data",
    "HF_HOME": "/huggingface",
    "VLLM_CACHE_ROOT": "/vllm",
    "TRITON_CACHE_DIR": "/triton",
    "TORCHINDUCTOR_CACHE_DIR": "/inductor",
    "TMPDIR": "",
}


def claims(claim_names: Iterable[str], writable: Collection[str] = ()) -> tuple[list[Manifest], list[Manifest]]:
    """Volumes and mounts of claims, each once; all but the `writable` are read-only."""
    volumes, mounts = [], []
    for at, name in enumerate(dict.fromkeys(claim_names)):
        read_only = name not in writable
        source = {"claimName": name} | ({"readOnly": True} if read_only else {})
        volumes.append({"name": f"claim-{at}", "persistentVolumeClaim": source})
        mount = {"name": f"claim-{at}", "mountPath": f"{names.CLAIMS_FOLDER}/{name}"}
        mounts.append(mount | ({"readOnly": True} if read_only else {}))
    return volumes, mounts


def config_map(volume: str, name: str, folder: str, key: str | None = None) -> tuple[Manifest, Manifest]:
    """A ConfigMap and where it is mounted; one key of it, or all."""
    source: Manifest = {"name": name}
    if key:
        source["items"] = [{"key": key, "path": key}]
    mount = {"name": volume, "mountPath": folder, "readOnly": True}
    return {"name": volume, "configMap": source}, mount


def secret(volume: str, name: str, folder: str) -> tuple[Manifest, Manifest]:
    """A Secret and where it is mounted. A pod starts without it."""
    mount = {"name": volume, "mountPath": folder, "readOnly": True}
    return {"name": volume, "secret": {"secretName": name, "optional": True}}, mount


def scratch(cache_mebibytes: int) -> tuple[list[Manifest], list[Manifest]]:
    """The one folder that can be written to."""
    cache = {"name": "cache", "emptyDir": {"sizeLimit": mebibytes(cache_mebibytes)}}
    return [cache], [{"name": "cache", "mountPath": names.CACHE_FOLDER}]


def environment(identity: Identity, setup: Setup) -> list[Manifest]:
    """Variables of a container: each cache in the folder that can be written to, then the operator's own."""
    own = {"TAILHOLD_PIPELINE": identity.audience, "USER": "tailhold"}
    caches = {name: names.CACHE_FOLDER + folder for name, folder in _CACHES.items()}
    given = [dict(each) for each in setup.env]
    taken = {each["name"] for each in given}
    ours = [{"name": name, "value": value} for name, value in (own | caches).items() if name not in taken]
    return ours + given


def container_security() -> Manifest:
    """No rights at all."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def pod_spec(setup: Setup, rules: Pod, identity: Identity, container: Manifest, volumes: list[Manifest]) -> Manifest:
    """A pod as the Pod Security level "restricted" wants it, with neither token nor Service variables of its own."""
    spec: Manifest = {
        "automountServiceAccountToken": rules.automount_service_account_token,
        "containers": [container],
        "enableServiceLinks": False,
        "securityContext": given.security(rules.security_context),
        "serviceAccountName": given.account(rules, identity),
        "volumes": [*volumes, *(dict(each) for each in setup.volumes), *given.volumes(rules)],
    }
    secrets = dict.fromkeys((*setup.pull_secrets, *rules.image_pull_secrets))
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return spec


def container(name: str, image: str, setup: Setup, rules: Pod, args: list[str], mounts: list[Manifest]) -> Manifest:
    """The one container of a pod; what it needs of the node is added by who knows."""
    described: Manifest = {
        "name": name,
        "image": image,
        "imagePullPolicy": setup.pull_policy,
        "args": args,
        "securityContext": container_security(),
        "terminationMessagePolicy": "File",
        "volumeMounts": [*mounts, *_mounts(setup, rules)],
    }
    if rules.env_from:
        described["envFrom"] = given.variables_from(rules)
    if setup.command:
        described["command"] = list(setup.command)
    return described


def probe(path: str, *, tls: bool = False, **timing: int) -> Mapping[str, Any]:
    """A look at the internal port. Kubelet checks no certificate."""
    scheme = {"scheme": "HTTPS"} if tls else {}
    return {"httpGet": {"path": path, "port": "internal", **scheme}, **timing}


def _mounts(setup: Setup, rules: Pod) -> list[Manifest]:
    """A mount of the pipeline's own takes the place of one of the operator's settings."""
    own = given.mounts(rules)
    taken = {each["mountPath"] for each in own}
    return [*(dict(each) for each in setup.mounts if each["mountPath"] not in taken), *own]
