"""The files of a chain: `<pipeline>/<pod>/<first record>-<time>.jsonl`, and where a new process goes on."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from tailhold_server.audit.record import START, Head, MalformedError, Record, head_of, read

SUFFIX = ".jsonl"
_MOST = 10**12
"""Numbers beyond are no server's: at a hundred records a second it takes 300 years."""
LOCK = ".lock"
"""Held by the process that writes to a pod's folder."""


@dataclass(frozen=True)
class Resumed:
    """What a folder held when a process came to it."""

    head: Head
    after: str
    """The file with the last record; empty where there is none."""
    left: tuple[dict[str, Any], ...]
    """What stands in the files after it: no whole record, or nothing, so a process ended while it wrote."""


def file_name(first: int, seconds: float) -> str:
    """Sorted by name, files are sorted by record: the clock may go back."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{first:012}-{at:%Y%m%dT%H%M%S}{at.microsecond:06}Z{SUFFIX}"


def chain_files(folder: Path) -> list[Path]:
    """The files of one chain, in order, and whatever else is named like one."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def regular_files(folder: Path) -> list[Path]:
    """The files of one chain, in order. A folder, a link or a pipe of such a name is nothing that a server wrote."""
    return [file for file in chain_files(folder) if stat.S_ISREG(file.lstat().st_mode)]


def opened(file: Path) -> BinaryIO:
    """To read a file; of a pipe nobody waits for its writer. Raises OSError, also where it is no regular file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file")
    return os.fdopen(descriptor, "rb")


def resume(folder: Path) -> Resumed:
    """Where the chain of a folder goes on: after the last record that is whole and as it was written."""
    left: list[dict[str, Any]] = []
    for file in reversed(regular_files(folder)):
        record, end = last_record(text := bytes_of(file))
        if (rest := text[end:]) or not record:
            left.insert(0, left_over(file.name, rest))
        if record:
            return Resumed(head_of(record), file.name, tuple(left))
    return Resumed(START, "", tuple(left))


def left_over(name: str, rest: bytes) -> dict[str, Any]:
    """Bytes after the last record of a file, as the next file vouches for them."""
    return {"file": name, "bytes": len(rest), "sha256": hashlib.sha256(rest).hexdigest()}


def last_record(text: bytes) -> tuple[Record | None, int]:
    """The last whole record of a file, and where its line ends; None and 0 where there is none."""
    end = len(text)
    while (stop := text.rfind(b"\n", 0, end)) >= 0:
        start = text.rfind(b"\n", 0, stop) + 1
        end = start
        with contextlib.suppress(MalformedError):
            if (record := read(text[start:stop]))["seq"] < _MOST:
                return record, stop + 1
    return None, 0


def first_record(text: bytes) -> Record | None:
    """The first line of a file, where it is a record."""
    try:
        return read(text.partition(b"\n")[0])
    except MalformedError:
        return None


def lines_of(file: Path) -> Iterator[bytes]:
    """Lines with their line feeds; the last may have none."""
    with opened(file) as lines:
        yield from lines


def bytes_of(file: Path) -> bytes:
    """The whole of it."""
    with opened(file) as whole:
        return whole.read()
