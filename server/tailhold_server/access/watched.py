"""Files of a mounted Secret, read anew when kubelet has swapped them."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Stamp = tuple[tuple[str, int, int, int], ...]

_OWN = ".."
"""How the names of kubelet's own folders and links begin."""
_MOST_BYTES = 2 * 1024 * 1024
"""Of one file: twice what a Secret may hold."""


class FilesRefusedError(Exception):
    """Files that cannot be used; the text says which and why, and nothing of what is secret in them."""


class Watched(Generic[Value]):
    """What the files of some folders say. Files that cannot be used leave the old value in force, and are said once.

    `tell` is called with True where the newest files are in force and False where they are not.
    """

    def __init__(self, folders: Sequence[Path], read: Callable[[], Value], tell: Callable[[bool], None]) -> None:
        """Raises FilesRefusedError."""
        self._folders = folders
        self._read = read
        self._tell = tell
        self._stamp = _stamp(folders)
        try:
            self.value = read()
        except OSError as error:
            raise FilesRefusedError(f"{error.filename} cannot be read: {error.strerror}") from error
        tell(True)

    def refresh(self) -> None:
        """Look whether the files have changed, and read them if so. Any thread, one at a time."""
        stamp = _stamp(self._folders)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        where = ", ".join(map(str, self._folders))
        try:
            self.value = self._read()
        except (FilesRefusedError, OSError) as error:
            _LOG.error("new files in %s are not taken, the old ones stay in force: %s", where, error)
            self._tell(False)
            return
        _LOG.info("new files in %s are in force", where)
        self._tell(True)


def entries(folder: Path) -> dict[str, bytes]:
    """The files of a folder by name, without kubelet's own. Raises FilesRefusedError and OSError."""
    return {path.name: read_file(path) for path in _files(folder)}


def read_file(path: Path) -> bytes:
    """Its bytes. Raises FilesRefusedError and OSError."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise FilesRefusedError(f"{path} is larger than {_MOST_BYTES} bytes")
    return data


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith(_OWN) and path.is_file())


def _stamp(folders: Sequence[Path]) -> Stamp:
    """Changes with every swap: the links' targets are other files then."""
    try:
        facts = [(str(path), path.stat()) for folder in folders for path in _files(folder)]
    except OSError:
        return ()
    return tuple((name, each.st_mtime_ns, each.st_ino, each.st_size) for name, each in facts)
