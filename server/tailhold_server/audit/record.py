"""A record and its place in the chain: what is hashed, and how a line is read back.

A line is the record as JSON: UTF-8, keys sorted, no blanks, numbers as orjson writes them, ended by a line feed. `hash`
is SHA-256, in hex, of that JSON without the member `hash` and without the line feed. `prev` is the `hash` of the record
before, 64 zeros for the first; `seq` counts from 1, in each pod's folder on its own.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

VERSION = 1
"""Of the format: a reader refuses what it does not know."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """The last record of a chain."""

    sequence: int
    hash: str


START = Head(0, "0" * 64)
"""Before the first record."""


class MalformedError(ValueError):
    """A line that no record was written as, or that was changed since."""


def canonical(record: Mapping[str, Any]) -> bytes:
    """The bytes that stand for a record."""
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)


def sealed(head: Head, body: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The line of the record that follows `head`, and the new head."""
    record = {**body, "v": VERSION, "seq": head.sequence + 1, "prev": head.hash}
    digest = hashlib.sha256(canonical(record)).hexdigest()
    return canonical(record | {"hash": digest}) + b"\n", Head(head.sequence + 1, digest)


def read(line: bytes) -> Record:
    """The record of a line without its line feed. Raises MalformedError where one byte is not as it was written."""
    try:
        record = orjson.loads(line)
    except ValueError:
        raise MalformedError("is no JSON") from None
    if not isinstance(record, dict) or not _has_place(record):
        raise MalformedError("is no record")
    if not _is_canonical(record, line):
        raise MalformedError("is not written as records are")
    rest = {name: value for name, value in record.items() if name != "hash"}
    if record.get("hash") != hashlib.sha256(canonical(rest)).hexdigest():
        raise MalformedError("does not match its hash")
    return record


def _has_place(record: Record) -> bool:
    number = record.get("seq")
    return type(number) is int and number > 0 and isinstance(record.get("prev"), str)


def _is_canonical(record: Record, line: bytes) -> bool:
    try:
        return canonical(record) == line
    except TypeError:  # it is nested deeper than orjson writes
        return False


def head_of(record: Mapping[str, Any]) -> Head:
    """The chain's head when this record was its last."""
    return Head(record["seq"], record["hash"])


def stamp(seconds: float) -> str:
    """A time as records have it: RFC 3339 in UTC, with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
