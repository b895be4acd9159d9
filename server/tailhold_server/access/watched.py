"""Files of a mounted Secret, read anew when kubelet has swapped them."""

import logging
import time
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

    `tell` is called with what the newest files say, and with None where they cannot be used.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        read: Callable[[], Value],
        tell: Callable[[Value | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises FilesRefusedError."""
        self._folders = folders
        self._read = read
        self._tell = tell
        self._clock = clock
        self._stamp = _stamp(folders)
        self._is_current = True
        self._looked = clock()
        try:
            self.value = read()
        except OSError as error:
            raise FilesRefusedError(f"{error.filename} cannot be read: {error.strerror}") from error
        tell(self.value)

    @property
    def age_seconds(self) -> float:
        """Since the last look that found the value to be what the files say."""
        return self._clock() - self._looked

    def refresh(self) -> None:
        """Look whether the files have changed, and read them if so. Any thread, one at a time."""
        stamp, now = _stamp(self._folders), self._clock()
        if stamp == self._stamp:
            self._looked = now if self._is_current else self._looked
            return
        self._stamp = stamp
        where = ", ".join(map(str, self._folders))
        try:
            self.value = self._read()
        except (FilesRefusedError, OSError) as error:
            _LOG.error("new files in %s are not taken, the old ones stay in force: %s", where, error)
            self._is_current = False
            self._tell(None)
            return
        self._is_current, self._looked = True, now
        _LOG.info("new files in %s are in force", where)
        self._tell(self.value)


def read_file(path: Path) -> bytes:
    """Its bytes. Raises FilesRefusedError and OSError."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise FilesRefusedError(f"{path} is larger than {_MOST_BYTES} bytes")
    return data


def files_of(folder: Path) -> list[Path]:
    """The files of a folder, sorted, without kubelet's own. Raises OSError."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(_OWN) and path.is_file())


def _stamp(folders: Sequence[Path]) -> Stamp:
    """Changes with every swap: the links' targets are other files then. Empty where a folder cannot be read."""
    try:
        return tuple(_mark(path) for folder in folders for path in files_of(folder))
    except OSError:
        return ()


def _mark(path: Path) -> tuple[str, int, int, int]:
    try:
        facts = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), facts.st_mtime_ns, facts.st_ino, facts.st_size
