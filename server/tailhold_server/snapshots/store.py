"""Publishes snapshots on a volume: all of it under its digest, or nothing."""

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tailhold_api.codec import digest, dump
from tailhold_server.snapshots.contents import Contents, files_of, manifest_of
from tailhold_server.snapshots.manifest import MANIFEST, SnapshotRefused, StoredFile
from tailhold_server.snapshots.read import Snapshot, open_snapshot

SNAPSHOTS = "snapshots"
PINS = "pins"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASIDE = ".part-"
_LEFT_SECONDS = 86400


def snapshot_folder(store: Path, name: str) -> Path:
    """Where the snapshot of this digest lies, or would."""
    return store / SNAPSHOTS / name


def write_snapshot(store: Path, contents: Contents) -> str:
    """Publish and return the digest.

    Readers see the whole snapshot or none. One that is there already is kept if it verifies, else replaced: a
    rebuild repairs a damaged volume.
    """
    root = store / SNAPSHOTS
    root.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=root))
    try:
        name = _fill(aside, contents)
        _publish(aside, snapshot_folder(store, name))
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return name


def newest(store: Path) -> Iterator[str]:
    """Digests on the volume, the one published last first."""
    root = store / SNAPSHOTS
    folders = [path for path in root.glob("*") if _DIGEST.fullmatch(path.name)] if root.is_dir() else []
    yield from (path.name for path in sorted(folders, key=lambda path: (-path.stat().st_mtime_ns, path.name)))


def newest_made_by(store: Path, embedder: str) -> Snapshot | None:
    """The newest sound snapshot whose vectors are this embedder's."""
    for name in newest(store):
        try:
            snapshot = open_snapshot(snapshot_folder(store, name), name)
        except SnapshotRefused:
            continue
        if snapshot.manifest.embedder == embedder:
            return snapshot
    return None


def keep_snapshots(store: Path, keep: int, pinned: Iterable[str] = ()) -> tuple[str, ...]:
    """Delete all but the `keep` newest and those that are pinned. Returns the digests of the deleted.

    Pinned are those given, and those that a file in `pins/` names: by its own name or within.
    """
    held = {*pinned, *_pins(store)}
    spent = tuple(name for name in list(newest(store))[keep:] if name not in held)
    for name in spent:
        _delete(snapshot_folder(store, name))
    for left in _left_over(store):
        shutil.rmtree(left, ignore_errors=True)
    return spent


def pin(store: Path, owner: str, snapshots: Iterable[str]) -> None:
    """Hold the snapshots that `owner` needs: builds of others on the same volume then delete none of them."""
    pins = store / PINS
    pins.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._-]", ".", owner)
    aside = pins / f"{_ASIDE}{name}"
    aside.write_text("".join(f"{each}\n" for each in sorted(set(snapshots))))
    aside.replace(pins / name)


def _fill(folder: Path, contents: Contents) -> str:
    facts = {name: _write(folder / name, data) for name, data in files_of(contents).items()}
    manifest = manifest_of(contents, facts)
    _write(folder / MANIFEST, dump(manifest).encode())
    folder.chmod(0o755)
    _sync_folder(folder)
    return digest(manifest)


def _write(path: Path, data: bytes) -> StoredFile:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o644)
    return StoredFile(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _publish(aside: Path, target: Path) -> None:
    if target.exists() and not _is_sound(target):
        _delete(target)
    if target.exists():
        os.utime(target)  # published last, so kept longest
    else:
        aside.rename(target)
    _sync_folder(target.parent)


def _is_sound(folder: Path) -> bool:
    try:
        open_snapshot(folder, folder.name)
    except SnapshotRefused:
        return False
    return True


def _delete(folder: Path) -> None:
    # Renamed first: a half-deleted folder must not bear a digest.
    aside = folder.with_name(f"{_ASIDE}{folder.name}")
    folder.rename(aside)
    shutil.rmtree(aside)


def _left_over(store: Path) -> Iterator[Path]:
    # A build that was killed leaves its folder; one that runs may share the volume: it takes under a day.
    for path in (store / SNAPSHOTS).glob(f"{_ASIDE}*"):
        if time.time() - path.stat().st_mtime > _LEFT_SECONDS:
            yield path


def _pins(store: Path) -> Iterator[str]:
    pins = store / PINS
    for path in sorted(pins.iterdir()) if pins.is_dir() else ():
        text = path.read_bytes()[:65536].decode("ascii", "replace") if path.is_file() else ""
        yield from _DIGEST.findall(f"{path.name}\n{text}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
