"""A source becomes a folder: at once where it is mounted, fetched where it is not."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailhold_api import names
from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel, ImageFolder, ObjectStoreFolder
from tailhold_api.sources import ClaimFolder, ModelSource, SnapshotSource
from tailhold_server.delivery.bucket import Bucket
from tailhold_server.delivery.cache import Cache
from tailhold_server.delivery.hub import Hub, offline, own_copy, why_offline
from tailhold_server.delivery.progress import Tell, silent
from tailhold_server.delivery.remote import Remote, RemoteFile, wanted
from tailhold_server.delivery.transfer import USUAL, Pace, again, transfer
from tailhold_server.errors import StartError
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.manifest import MANIFEST, MANIFEST_BYTES, SnapshotRefused

_TOKENS = ("token", "HF_TOKEN")
"""Keys of a Secret under which the hub's token may be."""


@dataclass(frozen=True)
class Places:
    """Where things are on this machine."""

    claims: Path
    images: Path
    secrets: Path
    fetched: Path
    limit_bytes: int | None = None
    """Most that one source may have in `fetched`, where that is a pod's own disk."""
    pace: Pace = USUAL

    @classmethod
    def of(cls, settings: ServerSettings, cache_mebibytes: int | None = None) -> "Places":
        """As the environment says; the limit holds for the pod's own cache alone."""
        own = settings.fetched == ServerSettings.model_fields["fetched"].default
        limit = cache_mebibytes * 1024**2 if own and cache_mebibytes else None
        return cls(settings.claims, settings.images, settings.secrets, settings.fetched, limit)


def deliver_model(source: ModelSource, places: Places, tell: Tell = silent) -> Path:
    """The model's folder, whole. Raises StartError that says what to do."""
    if source.hugging_face is not None:
        return _from_hub(source.hugging_face, places, tell)
    if source.object_store is not None:
        return _from_store(source.object_store, places, tell)
    return mounted(source, places)


def deliver_snapshot(source: SnapshotSource, digest: str, places: Places, tell: Tell = silent) -> Path:
    """The folder of the snapshot of this digest, not opened yet. Raises StartError."""
    if source.object_store is None:
        return mounted(source, places) / digest
    cache = Cache(places.fetched)
    if found := cache.find(digest):
        return found
    remote = _bucket(source.object_store, places, digest)
    return _fetched(remote, _snapshot_files(remote, digest, places.pace), digest, places, tell)


def remote_of(source: ModelSource, places: Places) -> Remote | None:
    """What a model is fetched from; None where it is mounted. Raises StartError where it may not be."""
    if source.hugging_face is not None:
        if why := why_offline(source.hugging_face):
            raise offline(source.hugging_face, why)
        return Hub(source.hugging_face, _token(places, source.hugging_face))
    return _bucket(source.object_store, places) if source.object_store is not None else None


def cached(source: ModelSource, places: Places) -> Path | None:
    """The model's folder, where it is there already and no network need be asked."""
    hub, store = source.hugging_face, source.object_store
    if hub is not None:
        copy = Cache(places.fetched).find(_hub_key(hub))
        return copy or (Path(own) if why_offline(hub) and (own := own_copy(hub)) else None)
    return Cache(places.fetched).find(_pinned_key(store)) if store is not None and store.sha256 else None


def mounted(source: ModelSource | SnapshotSource, places: Places) -> Path:
    """The folder of a source that is no remote one. Raises StartError that names the path."""
    if source.pvc is not None:
        return _on_claim(source.pvc, places.claims)
    if source.image is not None:
        return _in_image(source.image, places.images)
    if source.path is not None:
        return Path(source.path)
    raise StartError(Reason.MODEL_NOT_FOUND, "no source is given")


def _from_hub(model: HuggingFaceModel, places: Places, tell: Tell) -> Path:
    source = ModelSource(hugging_face=model)
    if found := cached(source, places):
        return found
    remote = remote_of(source, places)
    assert remote is not None  # noqa: S101 - a hub is one
    files = wanted(again(remote.files, places.pace, remote.title), remote.title)
    return _fetched(remote, files, _hub_key(model), places, tell)


def _from_store(store: ObjectStoreFolder, places: Places, tell: Tell) -> Path:
    """A prefix that is not pinned is listed at each start: what it holds names the copy."""
    source = ModelSource(object_store=store)
    if found := cached(source, places):
        return found
    remote = remote_of(source, places)
    assert remote is not None  # noqa: S101 - a store is one
    files = wanted(again(remote.files, places.pace, remote.title), remote.title)
    key = _pinned_key(store) if store.sha256 else _listed_key(store, files)
    return _fetched(remote, files, key, places, tell)


def _fetched(remote: Remote, files: Sequence[RemoteFile], key: str, places: Places, tell: Tell) -> Path:
    cache = Cache(places.fetched)
    if found := cache.find(key):
        return found
    with cache.alone(key, tell) as shown:
        # Whoever was waited for may have left it whole.
        if not (found := cache.find(key)):
            transfer(remote, files, cache.partial(key), shown, limit_bytes=places.limit_bytes, pace=places.pace)
            found = cache.publish(key, files, remote.title)
    tell(None)
    return found


def _snapshot_files(remote: Bucket, digest: str, pace: Pace) -> tuple[RemoteFile, ...]:
    """What the manifest names, once it is proved to be the digest's."""
    text = again(lambda: remote.get(MANIFEST, MANIFEST_BYTES), pace, remote.title)
    if (got := hashlib.sha256(text).hexdigest()) != digest:
        raise SnapshotRefused(f"{remote.title}/{MANIFEST}: expected sha256 {digest}, got {got}")
    facts = json.loads(text)["files"]
    named = [RemoteFile(name, fact["bytes"], sha256=fact["sha256"]) for name, fact in sorted(facts.items())]
    return (RemoteFile(MANIFEST, len(text), sha256=digest), *named)


def _on_claim(folder: ClaimFolder, claims: Path) -> Path:
    claim = claims / folder.claim_name
    if not claim.is_dir():
        raise StartError(Reason.MODEL_NOT_FOUND, f"claim {folder.claim_name} is not at {claim}")
    return _within(claim, folder.path, "claim")


def _in_image(image: ImageFolder, images: Path) -> Path:
    root = images / names.image_folder(image.reference)
    if not root.is_dir():
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"image {image.reference} is not mounted at {root}: image volumes need a cluster whose feature gate"
            " `ImageVolume` is on, else the API server drops them unsaid; elsewhere give `pvc` or `objectStore`",
        )
    return _within(root, image.path, "image")


def _within(root: Path, path: str, kind: str) -> Path:
    folder = (root / path).resolve()
    if not folder.is_relative_to(root.resolve()):
        raise StartError(Reason.MODEL_NOT_FOUND, f"{path} leads out of the {kind} at {root}")
    return folder


def _token(places: Places, model: HuggingFaceModel) -> str:
    """Of the Secret, or where there is no such folder (as without a cluster) the hub's own login."""
    folder = places.secrets / model.token_secret_name if model.token_secret_name else None
    if folder is not None and folder.is_dir():
        found = _secret(places, model.token_secret_name)
        return next((found[key] for key in _TOKENS if found.get(key)), "")
    from huggingface_hub import get_token

    return get_token() or ""


def _bucket(store: ObjectStoreFolder, places: Places, under: str = "") -> Bucket:
    """With the Secret's keys. One that has none is refused: the store's client would ask the node who it is."""
    secret, name = _secret(places, store.secret_name), store.secret_name
    if name and not secret and (places.secrets / name).is_dir():
        text = f"{store.url}: Secret `{name}` has no keys: put the store's into it, as `AWS_ACCESS_KEY_ID`"
        raise StartError(Reason.CREDENTIALS_REFUSED, text)
    return Bucket(store, secret, under)


def _secret(places: Places, name: str | None) -> Mapping[str, str]:
    """The keys of a mounted Secret; nothing where none is mounted."""
    folder = places.secrets / name if name else None
    if folder is None or not folder.is_dir():
        return {}
    return {each.name: each.read_text().strip() for each in sorted(folder.iterdir()) if each.is_file()}


def _hub_key(model: HuggingFaceModel) -> str:
    """A commit is the same from every mirror."""
    return _key("hub", model.repo, model.revision)


def _pinned_key(store: ObjectStoreFolder) -> str:
    return _key("store", store.url, store.sha256 or "")


def _listed_key(store: ObjectStoreFolder, files: Sequence[RemoteFile]) -> str:
    return _key("store", store.url, *(f"{each.name} {each.size} {each.etag} {each.sha256}" for each in files))


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
