"""The files of a chain: `<pipeline>/<pod>/<first record>-<time>.jsonl`, and where a new process goes on."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tailhold_server.audit.record import START, Head, MalformedError, Record, head_of, read

SUFFIX = ".jsonl"
LOCK = ".lock"
"""Held by the process that writes to a pod's folder."""


@dataclass(frozen=True)
class Resumed:
    """What a folder held when a process came to it."""

    head: Head
    after: str
    """The file with the last record; empty where there is none."""
    left: tuple[dict[str, Any], ...]
    """What stands in the files after it: no whole record, so a process ended while it wrote."""


def file_name(first: int, seconds: float) -> str:
    """Sorted by name, files are sorted by record: the clock may go back."""
    at = datetime.fromtimestamp(seconds, UTC)
    return f"{first:012}-{at:%Y%m%dT%H%M%S}{at.microsecond:06}Z{SUFFIX}"


def chain_files(folder: Path) -> list[Path]:
    """The files of one chain, in order."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def resume(folder: Path) -> Resumed:
    """Where the chain of a folder goes on: after the last record that is whole and as it was written."""
    left: list[dict[str, Any]] = []
    for file in reversed(chain_files(folder)):
        record, end = last_record(file)
        if rest := file.read_bytes()[end:]:
            left.insert(0, left_over(file.name, rest))
        if record:
            return Resumed(head_of(record), file.name, tuple(left))
    return Resumed(START, "", tuple(left))


def left_over(name: str, rest: bytes) -> dict[str, Any]:
    """Bytes after the last record of a file, as the next file vouches for them."""
    return {"file": name, "bytes": len(rest), "sha256": hashlib.sha256(rest).hexdigest()}


def last_record(file: Path) -> tuple[Record | None, int]:
    """The last whole record, and where its line ends; None and 0 where there is none."""
    end = len(text := file.read_bytes())
    while (stop := text.rfind(b"\n", 0, end)) >= 0:
        start = text.rfind(b"\n", 0, stop) + 1
        try:
            return read(text[start:stop]), stop + 1
        except MalformedError:
            end = start
    return None, 0


def first_record(file: Path) -> Record | None:
    """The first line, where it is a record."""
    with file.open("rb") as lines:
        line = lines.readline()
    try:
        return read(line.removesuffix(b"\n"))
    except MalformedError:
        return None


def lines_of(file: Path) -> Iterator[bytes]:
    """Lines with their line feeds; the last may have none."""
    with file.open("rb") as lines:
        yield from lines
