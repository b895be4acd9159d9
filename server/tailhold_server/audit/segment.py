"""One file of a chain: what is in it is on the disk, or is taken out again."""

import os
from pathlib import Path

from tailhold_server.audit.lock import is_at

_DAY_SECONDS = 86400


class Segment:
    """A file that is appended to, and to nothing but whose end."""

    def __init__(self, path: Path, descriptor: int, began: float, max_bytes: int) -> None:
        self.path = path
        self.usable = True
        """False where the disk may have other bytes than were written: nothing may follow in this file."""
        self._descriptor = descriptor
        self._began = began
        self._max_bytes = max_bytes
        self._size = 0

    @classmethod
    def created(cls, path: Path, line: bytes, now: float, max_bytes: int) -> "Segment":
        """A new file with its first record on the disk. Raises OSError, and leaves none then if the disk lets it."""
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o640)
        segment = cls(path, descriptor, now, max_bytes)
        try:
            segment.append(line)
            sync(path.parent)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        return segment

    def append(self, data: bytes) -> None:
        """All of it and on the disk. Raises OSError, and takes out then what it had written."""
        synced = True
        try:
            _write_all(self._descriptor, data)
            synced = False
            os.fdatasync(self._descriptor)
        except OSError:
            # After a sync that failed the kernel may take lost pages for written ones: this file is given up.
            self.usable = self._take_back() and synced
            raise
        self._size += len(data)

    def is_there(self) -> bool:
        """False where the file, or a folder above it, was removed or moved away while it was written."""
        return is_at(self.path, self._descriptor)

    def is_full(self, now: float) -> bool:
        """A file is as long as one day, at most, so that retention has whole files to delete."""
        return self._size >= self._max_bytes or now // _DAY_SECONDS != self._began // _DAY_SECONDS

    def close(self) -> None:
        """Nothing follows in this file."""
        os.close(self._descriptor)

    def _take_back(self) -> bool:
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            return False
        return True


def sync(path: Path) -> None:
    """A file, or a folder: a new name is on the disk only with its folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
