"""Which pieces of a file are there, each with its hash: what a crash left behind is proved before it is used."""

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

_SUFFIX = ".pieces"


class Partial:
    """A file that is being fetched, at `path`, beside a journal of one line for each piece that is there."""

    def __init__(self, path: Path, size: int, piece_bytes: int) -> None:
        self.path, self.size, self.piece_bytes = path, size, piece_bytes
        self._journal = path.with_name(path.name + _SUFFIX)
        self._lock = Lock()

    @property
    def count(self) -> int:
        """Pieces of the whole file."""
        return -(-self.size // self.piece_bytes)

    def bounds(self, piece: int) -> tuple[int, int]:
        """First byte of a piece, and one past its last."""
        return piece * self.piece_bytes, min(self.size, (piece + 1) * self.piece_bytes)

    def open(self) -> frozenset[int]:
        """Make the file, or find out which of its pieces are there and are what they were."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        told = self._told()
        found = frozenset(piece for piece, sha256 in told.items() if self._hash(piece) == sha256)
        with self.path.open("ab") as file:
            os.truncate(file.fileno(), self.size)
        return found

    def put(self, piece: int, data: bytes) -> None:
        """The piece is there, and a later start will know it."""
        handle = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            _write_all(handle, data, self.bounds(piece)[0])
        finally:
            os.close(handle)
        line = f"{self.piece_bytes} {piece} {hashlib.sha256(data).hexdigest()}\n"
        with self._lock, self._journal.open("a") as journal:
            journal.write(line)

    def discard(self) -> None:
        """Begin anew."""
        for each in (self.path, self._journal):
            with contextlib.suppress(FileNotFoundError):
                each.unlink()

    def close(self) -> None:
        """The file is whole and proved: flushed, without a journal."""
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        with contextlib.suppress(FileNotFoundError):
            self._journal.unlink()

    def hashed(self, total: "Callable[[bytes], None]") -> None:
        """Hand over all of it, block by block."""
        with self.path.open("rb") as file:
            while block := file.read(1 << 22):
                total(block)

    def _told(self) -> dict[int, str]:
        """A line that a crash cut, or of pieces of another size, says nothing."""
        try:
            lines = self._journal.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            return {}
        words = (line.split() for line in lines)
        own = (each for each in words if len(each) == 3 and each[0] == str(self.piece_bytes) and each[1].isdigit())
        return {int(piece): sha256 for _, piece, sha256 in own if int(piece) < self.count}

    def _hash(self, piece: int) -> str:
        start, end = self.bounds(piece)
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return hashlib.sha256(file.read(end - start)).hexdigest()
        except OSError:
            return ""


def _write_all(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
