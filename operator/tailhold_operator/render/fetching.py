"""What pods need in order to have models and snapshots: volumes, Secrets, certificates and a cache."""

from collections.abc import Iterable

from tailhold_api import names
from tailhold_api.delivery import Cache, CertificateKey, Trust
from tailhold_api.sources import ModelSource, SnapshotSource
from tailhold_operator.kinds import Manifest

Source = ModelSource | SnapshotSource
Volumes = tuple[list[Manifest], list[Manifest]]
"""Volumes of a pod, and where its container has them."""


def claims_of(sources: Iterable[Source]) -> tuple[str, ...]:
    """The claims that files are on."""
    return tuple(each.pvc.claim_name for each in sources if each.pvc)


def writable(cache: Cache | None) -> tuple[str, ...]:
    """The claim that files are fetched onto."""
    return (cache.claim_name,) if cache else ()


def environment(cache: Cache | None) -> list[Manifest]:
    """Where files are fetched to, where it is not the pod's own cache."""
    if cache is None:
        return []
    return [{"name": "TAILHOLD_FETCHED", "value": f"{names.CLAIMS_FOLDER}/{cache.claim_name}/tailhold"}]


def volumes(sources: Iterable[Source], trust: Trust | None, secrets: Iterable[str] = ()) -> Volumes:
    """Image volumes, Secrets, these and what files are fetched with, and certificates; each once. What changes in a
    Secret reaches the pod without a restart."""
    sources = list(sources)
    images = {each.image.reference: each.image.pull_policy.value for each in sources if each.image}
    found = [_image(*each, at) for at, each in enumerate(images.items())]
    found += [_secret(name, at) for at, name in enumerate(dict.fromkeys((*_secrets(sources), *secrets)))]
    found += [_trusted(trust)] if trust else []
    return [volume for volume, _ in found], [mount for _, mount in found]


def _secrets(sources: Iterable[Source]) -> Iterable[str]:
    for each in sources:
        hub = each.hugging_face if isinstance(each, ModelSource) else None
        if hub and hub.token_secret_name:
            yield hub.token_secret_name
        if each.object_store and each.object_store.secret_name:
            yield each.object_store.secret_name


def _image(reference: str, policy: str, at: int) -> tuple[Manifest, Manifest]:
    folder = f"{names.IMAGES_FOLDER}/{names.image_folder(reference)}"
    volume = {"name": f"image-{at}", "image": {"reference": reference, "pullPolicy": policy}}
    return volume, {"name": f"image-{at}", "mountPath": folder, "readOnly": True}


def _secret(name: str, at: int) -> tuple[Manifest, Manifest]:
    mount = {"name": f"secret-{at}", "mountPath": f"{names.SECRETS_FOLDER}/{name}", "readOnly": True}
    return {"name": f"secret-{at}", "secret": {"secretName": name}}, mount


def _trusted(trust: Trust) -> tuple[Manifest, Manifest]:
    mount = {"name": "trust", "mountPath": names.TRUST_FOLDER, "readOnly": True}
    key = trust.config_map or trust.secret
    assert key is not None  # noqa: S101 - one of the two is given
    named = {"name": key.name} if trust.config_map else {"secretName": key.name}
    source = {**named, "items": [_item(key)]}
    return {"name": "trust", "configMap" if trust.config_map else "secret": source}, mount


def _item(key: CertificateKey) -> Manifest:
    return {"key": key.key, "path": "ca.crt"}
