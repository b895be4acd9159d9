"""Files of a mounted Secret, read anew when kubelet has swapped them."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)

Value = TypeVar("Value")
Stamp = tuple[tuple[str, int, int, int, int], ...]

KEPT_SECONDS = 300.0
"""How long keys and authorities hold that cannot be read any more: one taken out meanwhile would open for ever."""
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
        is_whole: Callable[[Value], bool] = lambda _: True,
    ) -> None:
        """What is not whole is read again at the next look, though no file has changed. Raises FilesRefusedError."""
        self._folders = folders
        self._read = read
        self._tell = tell
        self._clock = clock
        self._stamp = _stamp(folders)
        self._is_whole = is_whole
        self.is_current = True
        """Whether the value is what the newest files say."""
        self.refused = ""
        """Why it is not; empty where it is."""
        self._looked = clock()
        try:
            self.value = read()
        except OSError as error:
            raise FilesRefusedError(f"{error.filename} cannot be read: {error.strerror}") from error
        self._is_settled = is_whole(self.value)
        tell(self.value)

    @property
    def age_seconds(self) -> float:
        """Since the last look that found the value to be what the files say."""
        return self._clock() - self._looked

    def refresh(self) -> None:
        """Look whether the files have changed, or could not be read, and read them if so. Any thread, one at a time."""
        stamp, now = _stamp(self._folders), self._clock()
        is_new = stamp != self._stamp
        if not is_new and self._is_settled:
            self._looked = now if self.is_current else self._looked
            return
        self._stamp = stamp
        try:
            self.value = self._read()
        except (FilesRefusedError, OSError) as error:
            self._refuse(error, is_new)
            return
        if is_new or self.refused:
            _LOG.info("new files in %s are in force", self._where)
        self.is_current, self._looked, self.refused = True, now, ""
        self._is_settled = self._is_whole(self.value)
        self._tell(self.value)

    def _refuse(self, error: FilesRefusedError | OSError, is_new: bool) -> None:
        """Said once. What could not be read may be so now; what was refused is refused until it changes."""
        if is_new or str(error) != self.refused:
            _LOG.error("new files in %s are not taken, the old ones stay in force: %s", self._where, error)
        self.is_current, self._is_settled = False, isinstance(error, FilesRefusedError)
        self.refused = str(error)
        self._tell(None)

    @property
    def _where(self) -> str:
        return ", ".join(map(str, self._folders))


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


def _mark(path: Path) -> tuple[str, int, int, int, int]:
    try:
        facts = path.stat()
    except OSError:
        return str(path), 0, 0, 0, 0
    return str(path), facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, facts.st_size
