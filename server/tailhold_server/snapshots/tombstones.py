"""Deletions that outlive snapshots: a document that was deleted stays so when an older snapshot comes back.

They lie beside the snapshots, each in a file that is named by its document: pods and Jobs that share the volume need no
lock, and a file that cannot be read still deletes.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tailhold_server.ports import Document
from tailhold_server.snapshots.store import write_whole

TOMBSTONES = "tombstones"
_ENDING = ".json"
_UNREAD = set[Path]()
"""Those that the log has named."""
_LOG = logging.getLogger(__name__)


class Tombstone(BaseModel):
    """One deleted document."""

    model_config = ConfigDict(frozen=True)

    source: str
    """Name of the corpus source."""
    document: str
    """Path within it."""
    at: float
    """When it was deleted first, in seconds since 1970."""
    restored: tuple[str, ...] = ()
    """SHA-256 of versions that came after the deletion and are wanted. All others are deleted."""


@dataclass(frozen=True)
class Tombstones:
    """All of a volume. Equal ones hide the same."""

    _restored: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._restored)

    def hides(self, document: Document) -> bool:
        """Whether this version of a document is deleted. One whose version nobody wrote down is, if any is."""
        if not self._restored:
            return False
        restored = self._restored.get(_name(document.source, document.path))
        return restored is not None and document.digest not in restored


def add_tombstone(store: Path, source: str, document: str, *, at: float) -> Tombstone:
    """Delete every version of a document that there is or was, in this and all other snapshots of the volume.

    Servers hide it within `TAILHOLD_DELETION_SECONDS`; builds leave it out. A deletion anew takes back what was
    restored in between.
    """
    held = _read(_path(store, source, document))
    deleted = Tombstone(source=source, document=document, at=held.at if held else at)
    _write(store, deleted)
    return deleted


def restore_version(store: Path, source: str, document: str, digest: str) -> Tombstone | None:
    """Let the version with this SHA-256 be found again, and no other. None where the document is not deleted."""
    held = _read(_path(store, source, document))
    if held is None:
        return None
    restored = held.model_copy(update={"restored": tuple(dict.fromkeys((*held.restored, digest)))})
    _write(store, restored)
    return restored


def read_tombstones(store: Path) -> Tombstones:
    """All deletions. Raises OSError where the volume cannot say: nobody may take that for none."""
    folder = store / TOMBSTONES
    try:
        names = sorted(path.stem for path in folder.iterdir() if path.suffix == _ENDING)
    except FileNotFoundError:
        return Tombstones()
    found = ((name, _told(folder / f"{name}{_ENDING}")) for name in names)
    return Tombstones({name: frozenset(each.restored if each else ()) for name, each in found})


def list_tombstones(store: Path) -> list[Tombstone]:
    """Those that say what they are of, the oldest first."""
    folder = store / TOMBSTONES
    found = (_told(path) for path in folder.glob(f"*{_ENDING}")) if folder.is_dir() else iter(())
    return sorted((each for each in found if each), key=lambda each: (each.at, each.source, each.document))


def is_marked(store: Path, source: str, document: str) -> bool:
    """Whether it was deleted before, and be it that versions came back."""
    return _path(store, source, document).exists()


def _name(source: str, document: str) -> str:
    return hashlib.sha256(f"{source}\0{document}".encode()).hexdigest()


def _path(store: Path, source: str, document: str) -> Path:
    return store / TOMBSTONES / f"{_name(source, document)}{_ENDING}"


def _read(path: Path) -> Tombstone | None:
    """None for one that is not there, and for one that somebody spoiled."""
    try:
        return Tombstone.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _told(path: Path) -> Tombstone | None:
    """The same, and None for one that cannot be read, which the log names once while it is so."""
    try:
        read = _read(path)
    except OSError as error:
        if path not in _UNREAD:
            _LOG.error("the deletion %s cannot be read and deletes every version: %s", path, error.strerror)
        _UNREAD.add(path)
        return None
    _UNREAD.discard(path)
    return read


def _write(store: Path, tombstone: Tombstone) -> None:
    write_whole(_path(store, tombstone.source, tombstone.document), tombstone.model_dump_json())
