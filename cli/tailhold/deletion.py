"""`tailhold index delete`, `deleted` and `restore`: documents that no snapshot of a volume may show."""

import difflib
import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tailhold.given import GivenError, check_given, check_utf8
from tailhold_server.snapshots.catalogue import Catalogue, read_catalogue
from tailhold_server.snapshots.store import PINS, newest
from tailhold_server.snapshots.tombstones import (
    TOMBSTONES,
    add_tombstone,
    is_marked,
    list_tombstones,
    restore_version,
)

_NEAR = 3
_FLAG = "--also-if-absent"


class DeletionError(Exception):
    """Nothing was changed; the text says what was looked for, where, and what to do."""


def delete(store: Path, source: str, document: str, now: float, *, also_if_absent: bool = False) -> int:
    """Delete a document in every snapshot of the volume, those to come too, and say where its text still lies.

    One that no snapshot holds is refused as mistyped unless `also_if_absent`: the mark then waits for it.
    Raises DeletionError.
    """
    _check_names(source, document)
    with _volume(store):
        _check_store(store)
        found = read_catalogue(store)
        held = found.holders(source, document)
        if not (held or also_if_absent or is_marked(store, source, document)):
            raise DeletionError(_absent(store, found, source, document))
        add_tombstone(store, source, document, at=now)
    print(f"deleted: {source}/{document}; servers hide it within seconds, builds leave it out")
    if not held:
        print("no snapshot on this volume that can be read holds it: the mark stays, should it come")
    for name in held:
        print(f"its text is still on the volume in snapshot {name[:10]}, until no pipeline holds that")
    for name, why in found.unreadable.items():
        print(f"its text may be in snapshot {name[:10]}, which cannot be read: {why}", file=sys.stderr)
    return 0


def deleted(store: Path) -> int:
    """Print what is deleted, the oldest first. Raises DeletionError."""
    with _volume(store):
        _check_store(store)
        found = list_tombstones(store)
    for each in found:
        at = datetime.fromtimestamp(each.at, UTC).isoformat(timespec="seconds")
        versions = f", but {len(each.restored)} version(s) are wanted again" if each.restored else ""
        print(f"{at} {each.source}/{each.document}{versions}")
    if not found:
        print(f"nothing is deleted at {store}", file=sys.stderr)
    return 0


def restore(store: Path, source: str, document: str, file: Path) -> int:
    """Let this version of a deleted document be found again, and no other. Raises DeletionError."""
    _check_names(source, document)
    with _volume(store):
        _check_store(store)
    version = _version(file)
    with _volume(store):
        restored = restore_version(store, source, document, version)
        marked = [f"{each.source}/{each.document}" for each in list_tombstones(store)]
    if restored is None:
        near = _near(f"{source}/{document}", marked) or "`tailhold index deleted` lists what is"
        raise DeletionError(f"{source}/{document} is not deleted at {store}: {near}")
    print(f"{source}/{document}: this version of {file} is found again in every snapshot that holds it; others are not")
    return 0


def _check_names(source: str, document: str) -> None:
    check_utf8("the source", source)
    check_utf8("the document", document)


def _version(file: Path) -> str:
    try:
        check_given(file)
        with file.open("rb") as version:
            return hashlib.file_digest(version, "sha256").hexdigest()
    except GivenError as error:
        raise DeletionError(f"{error}: the version that is wanted") from None
    except OSError as error:
        raise DeletionError(f"{file} cannot be read: {error.strerror}: give the version that is wanted") from error


@contextmanager
def _volume(store: Path) -> Iterator[None]:
    """What the volume refuses is a DeletionError."""
    try:
        yield
    except OSError as error:
        where = error.filename or store / TOMBSTONES
        raise DeletionError(f"{where}: {error.strerror}: nothing was changed; put that right and try again") from error


def _check_store(store: Path) -> None:
    """Raises DeletionError where no index was ever built."""
    if _is_store(store):
        return
    what = "holds no index snapshots" if store.is_dir() else "is not there"
    raise DeletionError(f"{store} {what}: give the folder of the claim that `index.store` names{_instead(store)}")


def _is_store(folder: Path) -> bool:
    """By what only builds and deletions make: the folder of all claims may hold one that is called `snapshots`."""
    return (folder / PINS).is_dir() or (folder / TOMBSTONES).is_dir() or any(newest(folder))


def _instead(store: Path) -> str:
    """A store that is one step away: the folder of all claims, or one within the store, was named."""
    folders = [each for each in (store, store.parent) if each.is_dir()]
    near = (store.parent, *(each for folder in folders for each in folder.iterdir()))
    found = sorted({each for each in near if _is_store(each)})
    return f", as {', '.join(map(str, found[:_NEAR]))}" if found else ", once an index was built into it"


def _absent(store: Path, found: Catalogue, source: str, document: str) -> str:
    count = len(found.documents)
    where = f"the {count} snapshots at {store}" if count != 1 else f"the one snapshot at {store}"
    names = found.names()
    sources = sorted({each for each, _ in names})
    if source not in sources:
        others = sorted(each for each, path in names if path == document)
        told = f"it is in source {', '.join(others)}" if others else f"the sources are {', '.join(sources) or 'none'}"
        said = f"no source {source!r} in {where}: {told}"
    else:
        near = _near(document, [path for each, path in names if each == source])
        said = f"no document {document!r} of source {source!r} in {where}: {near or 'none is named like it'}"
    unread = f"; {len(found.unreadable)} more cannot be read, and may hold it" if found.unreadable else ""
    step = "Give a name of `corpus.sources` and a path within it"
    return f"{said}{unread}\nNothing was deleted. {step}; {_FLAG} deletes what is yet to come."


def _near(wanted: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(wanted, sorted(names), _NEAR, 0.6)
    return f"did you mean {' or '.join(found)}?" if found else ""
