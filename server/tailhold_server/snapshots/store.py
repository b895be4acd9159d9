"""Publishes snapshots on a volume: all of it under its digest, or nothing."""

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from tailhold_api.codec import digest, dump
from tailhold_server.snapshots.contents import Contents, files_of, manifest_of
from tailhold_server.snapshots.manifest import HASH, MANIFEST, SnapshotRefused, StoredFile
from tailhold_server.snapshots.read import Snapshot, open_snapshot

SNAPSHOTS = "snapshots"
PINS = "pins"
"""Folder of one file for each owner: a JSON list of the snapshots it holds, newest first."""
LOCAL = "local"
"""The owner where no pipeline of a cluster builds. It has no dot, so it is no pipeline's file."""
YOUNG_SECONDS = 3600
"""A snapshot that nobody holds yet may be one that another build is about to hold."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ASIDE = ".part-"
_LEFT_SECONDS = 86400
_PINNED: TypeAdapter[list[Annotated[str, Field(pattern=HASH)]]] = TypeAdapter(list[Annotated[str, Field(pattern=HASH)]])
_log = logging.getLogger(__name__)


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
    published = _published(store)
    yield from sorted(published, key=lambda name: (-published[name], name))


def newest_made_by(store: Path, embedder: str, owner: str) -> Snapshot | None:
    """The newest sound snapshot whose vectors are this embedder's: of the owner's first, then of any."""
    for name in dict.fromkeys((*_own_pins(store, owner), *newest(store))):
        try:
            snapshot = open_snapshot(snapshot_folder(store, name), name)
        except SnapshotRefused:
            continue
        if snapshot.manifest.embedder == embedder:
            return snapshot
    return None


def owned(new: str, pinned: Collection[str], before: Sequence[str], keep: int) -> list[str]:
    """What an owner holds after a build, newest first: the new, `keep` of those before, and all pinned."""
    earlier = [name for name in before if name != new]
    held = [name for place, name in enumerate(earlier) if place < keep or name in pinned]
    return list(dict.fromkeys((new, *held, *pinned)))


def spent(published: Mapping[str, float], held: Collection[str], now: float) -> tuple[str, ...]:
    """What may be deleted: nobody holds it, and no build that is just publishing it can be about to."""
    return tuple(name for name, at in published.items() if name not in held and now - at >= YOUNG_SECONDS)


def keep_snapshots(
    store: Path, owner: str, new: str, *, keep: int, pinned: Collection[str] = (), now: float
) -> tuple[str, ...]:
    """Write what the owner holds into its file in `pins/`, then delete what no owner's file names.

    Returns the digests of the deleted: none while one of the files cannot be read.
    """
    known = _held(store) is not None  # asked before the owner's own file is written anew
    sound = [name for name in pinned if _DIGEST.fullmatch(name)]
    mine = owned(new, sound, _own_pins(store, owner), keep)
    write_whole(_pin_file(store, owner), json.dumps(mine))
    for left in _left_over(store, now):
        shutil.rmtree(left, ignore_errors=True)
    return _prune(store, now) if known else ()


def write_whole(path: Path, text: str) -> None:
    """Write a file of which readers see all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=_ASIDE)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(handle, 0o644)
        file.flush()
        os.fsync(handle)
    Path(aside).rename(path)
    _sync_folder(path.parent)


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


def _left_over(store: Path, now: float) -> Iterator[Path]:
    # A build that was killed leaves its folder; one that runs may share the volume: it takes under a day.
    for path in (store / SNAPSHOTS).glob(f"{_ASIDE}*"):
        with suppress(FileNotFoundError):
            if now - path.stat().st_mtime > _LEFT_SECONDS:
                yield path


def _published(store: Path) -> dict[str, float]:
    times = {}
    for path in (store / SNAPSHOTS).glob("*"):
        with suppress(FileNotFoundError):  # another build may delete it now
            if _DIGEST.fullmatch(path.name):
                times[path.name] = path.stat().st_mtime_ns / 1e9
    return times


def _prune(store: Path, now: float) -> tuple[str, ...]:
    published, held = _published(store), _held(store)
    gone = () if held is None else spent(published, held, now)
    for name in gone:
        with suppress(FileNotFoundError):  # another build deletes the same
            _delete(snapshot_folder(store, name))
    return gone


def _pin_file(store: Path, owner: str) -> Path:
    return store / PINS / f"{owner.replace('/', '.')}.json"


def _pin_files(store: Path) -> list[Path]:
    pins = store / PINS
    return [path for path in pins.iterdir() if not path.name.startswith(_ASIDE)] if pins.is_dir() else []


def _held(store: Path) -> set[str] | None:
    held: set[str] = set()
    for path in _pin_files(store):
        try:
            held.update(_read_pins(path))
        except (OSError, ValueError) as error:
            _log.warning("no snapshot is deleted: %s cannot be read, repair or remove it: %s", path, error)
            return None
    return held


def _read_pins(path: Path) -> list[str]:
    return _PINNED.validate_json(path.read_bytes(), strict=True)


def _own_pins(store: Path, owner: str) -> list[str]:
    try:
        return _read_pins(_pin_file(store, owner))
    except (OSError, ValueError):
        return []


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
