"""A file that comes: nothing of it is seen before it is whole."""

import errno
import hashlib
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.uploads.entry import ABOUT, CONTENT, About, open_content
from tailhold_server.uploads.names import is_id, upload_id
from tailhold_server.uploads.turn import Turn
from tailhold_server.uploads.volume import BrokenError, asked, clear, entries, settle, take_away, write_new

_TRIES = 5


class Incoming:
    """Its steps run on threads, one at a time: giving it up waits for the one that runs, and none follows.

    The volume is touched with the first byte, so one that nobody writes to leaves nothing.
    """

    def __init__(self, files: Path, coming: Path, turn: Turn, most: int | None = None) -> None:
        """Published where at most so many files are there with it; one that is there already is no other."""
        self._turn = turn
        self._most = most
        self._files = files
        self._coming = coming
        self._aside = coming / secrets.token_hex(16)
        self._sha = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._is_over = False
        self.bytes = 0

    def write(self, data: bytes) -> None:
        """The next piece."""
        with self._lock, asked():
            file = self._open()
            file.write(data)
            file.flush()  # the time of the last byte tells a file that comes from one whose writer is gone
            self._sha.update(data)
            self.bytes += len(data)

    def finish(self, filename: str, purpose: str, now: int) -> tuple[str, About]:
        """Publish it under its id; the same name and bytes are the same file, which stays as it was if it is whole."""
        with self._lock:
            try:
                with asked():
                    return self._finish(filename, purpose, now)
            finally:
                self._end()

    def abandon(self) -> None:
        """Leave nothing of it. Slow: it waits for the step that runs."""
        with self._lock:
            self._end()

    def _open(self) -> BinaryIO:
        if self._is_over:
            raise ServeError(Failure.TOO_SLOW, "The upload was given up. Send it again.")
        if self._file is None:
            self._aside.mkdir()
            self._file = (self._aside / CONTENT).open("xb")
        return self._file

    def _finish(self, filename: str, purpose: str, now: int) -> tuple[str, About]:
        file, sha256 = self._open(), self._sha.hexdigest()
        about = About(filename=filename, purpose=purpose, bytes=self.bytes, sha256=sha256, created_at=now)
        name = upload_id(filename, sha256)
        os.fsync(file.fileno())
        file.close()
        write_new(self._aside / ABOUT, about.model_dump_json().encode())
        settle(self._aside)
        return name, self._publish(self._files / name, about)

    def _publish(self, place: Path, about: About) -> About:
        """What is known of the file that is there now: this one, or the whole one that was there before."""
        for _ in range(_TRIES):
            if os.path.lexists(place):
                if before := _whole(place):
                    settle(self._files)
                    return before
                take_away(place, self._coming)
            if self._placed(place):
                settle(self._files)
                return about
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(place))

    def _placed(self, place: Path) -> bool:
        """Whether this one stands there; not where another one came first. Raises ServeError where there is no room."""
        with self._turn.taken():
            if os.path.lexists(place):
                return False
            if self._most is not None and sum(is_id(each.name) for each in entries(self._files)) >= self._most:
                raise _too_many(self._most)
            self._aside.rename(place)
            return True

    def _end(self) -> None:
        self._is_over = True
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            clear(self._aside)


def _too_many(most: int) -> ServeError:
    told = f"There are {most} files, which is `corpus.uploads.maxFiles`: delete some, or raise it"
    return invalid(told, code="too_many_files")


def _whole(place: Path) -> About | None:
    """None for one that is broken, down to its bytes, or gone."""
    try:
        about, file = open_content(place)
    except (FileNotFoundError, BrokenError):
        return None
    with file:
        digest = hashlib.file_digest(file, "sha256")
        return about if digest.hexdigest() == about.sha256 else None
