"""Which files are older than they are to be kept, those of pods that are gone among them."""

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from tailhold_server.audit.files import LOCK, bytes_of, chain_files, first_record, last_record, regular_files
from tailhold_server.audit.record import Record, head_of

_LOG = logging.getLogger(__name__)
_NO_FILE = (errno.EISDIR, errno.ELOOP, errno.ENXIO)


class Removal(NamedTuple):
    """A file that is too old."""

    told: Mapping[str, Any]
    """What the record of its deletion says: enough to carry the chain over the gap."""
    delete: Callable[[], None]
    """To be called once that record is on the disk."""


def removals(own: Path, before: float) -> Iterator[Removal]:
    """Files whose last record is from before that time: of the own folder, and of pods that hold theirs no more."""
    yield from _old_files(own, before, all_but_newest=True)
    for folder in sorted(own.parent.iterdir()):
        if folder == own or not folder.is_dir():
            continue
        try:
            yield from _left_behind(folder, before)
        except OSError as error:
            _LOG.error("old audit records of %s cannot be deleted: %s", folder, error.strerror)


def _left_behind(folder: Path, before: float) -> Iterator[Removal]:
    with taken(folder) as ours:
        if ours:
            yield from _old_files(folder, before, all_but_newest=False)
            _remove_if_empty(folder)


def _old_files(folder: Path, before: float, *, all_but_newest: bool) -> Iterator[Removal]:
    files = regular_files(folder)
    for file in files[:-1] if all_but_newest else files:
        if file.stat().st_mtime < before and (removal := _removal(file, before)):
            yield removal
        else:
            return  # those that follow are younger


def _removal(file: Path, before: float) -> Removal | None:
    last, _ = last_record(text := bytes_of(file))
    if last is None:
        told: dict[str, Any] = {"first": 0, "last": 0, "lastHash": ""}
    elif _time(last) >= before:
        return None
    else:
        first = first_record(text)
        told = {"first": first["seq"] if first else 0, "last": last["seq"], "lastHash": head_of(last).hash}
    told |= {"pod": file.parent.name, "file": file.name, "bytes": len(text)}
    return Removal(told, lambda: file.unlink(missing_ok=True))


def _time(record: Record) -> float:
    """0 where somebody else than a server wrote it: the file's own time decides then."""
    try:
        return datetime.fromisoformat(str(record.get("time"))).timestamp()
    except (ValueError, OverflowError):
        return 0.0


@contextmanager
def taken(folder: Path) -> Iterator[bool]:
    """Whether no process writes to the folder, and none will for as long as this is entered.

    What is no file of that name was put there by somebody else: no server writes beside it.
    """
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno not in (errno.ENOENT, *_NO_FILE):
            raise
        yield True
        return
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except OSError:
        yield False
    finally:
        os.close(lock)


def _remove_if_empty(folder: Path) -> None:
    if not chain_files(folder):
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)
            folder.rmdir()
