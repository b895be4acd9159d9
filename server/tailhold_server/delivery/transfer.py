"""Fetches files piece by piece, several at once, again where it fails, and proves each."""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tailhold_api.conditions import Reason
from tailhold_server.delivery.journal import Partial
from tailhold_server.delivery.progress import Meter, Tell
from tailhold_server.delivery.remote import Remote, RemoteFile, TransientError
from tailhold_server.errors import StartError

GIBIBYTE = 1024**3
_FULL = (errno.ENOSPC, errno.EDQUOT)
Got = TypeVar("Got")


@dataclass(frozen=True)
class Pace:
    """How hard is tried."""

    piece_bytes: int = 16 << 20
    at_once: int = 8
    tries: int = 7
    """For one piece: with waits of 0.5 s, doubled each time, half a minute in all."""
    longest_wait_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep


USUAL = Pace()


def again(call: Callable[[], Got], pace: Pace, what: str) -> Got:
    """Call until it does not fail by chance. Raises StartError, not final, when it has failed too often."""
    for attempt in range(pace.tries):
        try:
            return call()
        except TransientError as error:
            last = error
            if attempt + 1 < pace.tries:
                pace.sleep(min(pace.longest_wait_seconds, max(error.wait_seconds, 0.5 * 2**attempt)))
    raise StartError(Reason.SOURCE_UNREACHABLE, f"{what}: {last}; tried {pace.tries} times", final=False) from last


def transfer(
    remote: Remote,
    files: Sequence[RemoteFile],
    folder: Path,
    tell: Tell,
    *,
    limit_bytes: int | None = None,
    pace: Pace = USUAL,
) -> None:
    """All files are in the folder and proved. Raises StartError; what is there stays for the next try."""
    partials = {each: Partial(folder / each.name, each.size, pace.piece_bytes) for each in files}
    try:
        there = {each: partial.open() for each, partial in partials.items()}
        missing = [(each, piece) for each, at in there.items() for piece in range(partials[each].count)]
        missing = [(each, piece) for each, piece in missing if piece not in there[each]]
        total = sum(each.size for each in files)
        left = sum(_length(partials[each], piece) for each, piece in missing)
        _check_room(folder, remote.title, total, left, limit_bytes)
        meter = Meter(f"fetching {remote.title}", total, total - left, tell)
        _fetch(remote, partials, missing, meter, pace)
        for each, partial in partials.items():
            _prove(remote, each, partial, meter, pace)
    except OSError as error:
        raise _disk(error, folder, remote.title) from error


def _fetch(
    remote: Remote,
    partials: dict[RemoteFile, Partial],
    missing: Sequence[tuple[RemoteFile, int]],
    meter: Meter,
    pace: Pace,
) -> None:
    """The first failure ends it; what runs beside it is waited for."""

    def fetch(file: RemoteFile, piece: int) -> None:
        start, end = partials[file].bounds(piece)
        data = again(lambda: _read(remote, file, start, end), pace, f"{file.name} of {remote.title}")
        partials[file].put(piece, data)
        meter.add(end - start)

    with ThreadPoolExecutor(pace.at_once, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(fetch, *each) for each in missing]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=False, cancel_futures=True)
    failed = next((error for each in done if (error := each.exception())), None)
    if failed:
        raise failed


def _read(remote: Remote, file: RemoteFile, start: int, end: int) -> bytes:
    data = remote.read(file, start, end)
    if len(data) != end - start:
        raise TransientError(f"{len(data):,} bytes came of {end - start:,}")
    return data


def _prove(remote: Remote, file: RemoteFile, partial: Partial, meter: Meter, pace: Pace) -> None:
    """Wrong bytes are fetched once more, since a proxy may have spoilt them; then they are refused."""
    if _differs(file, partial):
        partial.discard()
        partial.open()
        meter.add(-file.size)
        _fetch(remote, {file: partial}, [(file, piece) for piece in range(partial.count)], meter, pace)
    if difference := _differs(file, partial):
        partial.discard()
        raise StartError(
            Reason.CHECKSUM_MISMATCH,
            f"{file.name} of {remote.title}: {difference}, twice. It was changed on the way or in the store: compare"
            " the file there with its checksum",
        )
    partial.close()


def _differs(file: RemoteFile, partial: Partial) -> str:
    """What differs; empty where nothing does, or nothing is known."""
    if file.sha256:
        total, expected, kind = hashlib.sha256(), file.sha256, "sha256"
    elif file.git_sha1:
        total, expected, kind = hashlib.sha1(f"blob {file.size}\0".encode()), file.git_sha1, "git sha1"  # noqa: S324
    else:
        return ""
    partial.hashed(total.update)
    got = total.hexdigest()
    return "" if got == expected else f"expected {kind} {expected}, got {got}"


def _check_room(folder: Path, title: str, total: int, left: int, limit_bytes: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if limit_bytes is not None and total > limit_bytes:
        raise _no_room(title, total, f"`placement.cacheMebibytes` lets {folder} have {limit_bytes / GIBIBYTE:.1f} GiB")
    if left > free:
        raise _no_room(title, left, f"{folder} has {free / GIBIBYTE:.1f} GiB free")


def _no_room(title: str, needed: int, what: str) -> StartError:
    return StartError(
        Reason.NO_SPACE,
        f"{title} needs {needed / GIBIBYTE:.1f} GiB, and {what}: make room there, raise `placement.cacheMebibytes`, or"
        " give `server.cache` a claim that is large enough",
    )


def _disk(error: OSError, folder: Path, title: str) -> StartError:
    if error.errno in _FULL:
        needed = f"{title}: {folder} is full"
        return StartError(
            Reason.NO_SPACE,
            f"{needed}: make room there, raise `placement.cacheMebibytes`, or give `server.cache` a larger claim",
        )
    where = error.filename or folder
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        text = f"{title}: {where} cannot be written ({os.strerror(error.errno)}): the claim of `server.cache` has to be"
        return StartError(Reason.START_FAILED, f"{text} one that pods may write, as with `fsGroup`")
    return StartError(Reason.START_FAILED, f"{title}: {where}: {error.strerror}", final=False)


def _length(partial: Partial, piece: int) -> int:
    start, end = partial.bounds(piece)
    return end - start
