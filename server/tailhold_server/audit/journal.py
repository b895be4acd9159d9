"""The one thread that writes records: what gathers while the disk works is written and synced together."""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tailhold_server.audit.files import LOCK, file_name, resume
from tailhold_server.audit.record import START, Head, sealed, stamp
from tailhold_server.audit.retention import removals
from tailhold_server.audit.segment import Segment

_LOG = logging.getLogger(__name__)

Body = Mapping[str, Any]
_DAY_SECONDS = 86400
_MOST_TOGETHER = 1024
_TICK_SECONDS = 60.0
_SWEEP_SECONDS = 3600.0


class NotRecordedError(Exception):
    """A record is not on the disk."""


class Meter(Protocol):
    """Who counts."""

    def recorded(self, records: int, seconds: float) -> None:
        """So many are on the disk, after so long."""

    def not_recorded(self, records: int) -> None:
        """So many are not."""


@dataclass(frozen=True)
class Entry:
    """A record to be written."""

    body: Callable[[], Body]
    """Called in the writer's thread."""
    done: "asyncio.Future[None] | None" = None
    """Who waits for it."""


class Journal:
    """The chain of one pod, at `<pipeline>/<pod>` on the claim. One thread writes it."""

    def __init__(
        self,
        folder: Path,
        about: Body,
        retention_days: Callable[[], int],
        meter: Meter,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.head: Head = START
        """The last record that is on the disk."""
        self._folder = folder
        self._about = about
        self._retention_days = retention_days
        self._meter = meter
        self._max_bytes = max_bytes
        self._clock = clock
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._lost = 0
        self._lost_told = 0
        self._lock = -1
        self._segment: Segment | None = None
        self._after = ""
        self._left: tuple[Body, ...] = ()
        self._swept = 0.0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def open(self) -> None:
        """Take the folder and begin a file. Raises OSError; the thread goes on trying."""
        self._begin()

    def start(self) -> None:
        """Write what is put from now on."""
        self._thread.start()

    def put(self, body: Callable[[], Body]) -> "asyncio.Future[None]":
        """A record that is waited for: the future ends when the disk has it, or raises NotRecordedError."""
        done = asyncio.get_running_loop().create_future()
        self._queue.put(Entry(body, done))
        return done

    def leave(self, body: Callable[[], Body]) -> None:
        """A record that nobody waits for."""
        self._queue.put(Entry(body))

    def lose(self) -> None:
        """An answer goes on without a record; the chain says so when it can. From one thread alone."""
        self._lost += 1

    def close(self) -> None:
        """Write what waits and that nothing follows, then end. Blocks."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._gathered()
            if not going:
                batch.append(Entry(lambda: {"kind": "stopped", "time": stamp(self._clock())}))
            if batch:
                self._commit(batch)
            if going:
                self._tend()
        self._end_segment()
        if self._lock >= 0:
            os.close(self._lock)

    def _gathered(self) -> tuple[list[Entry], bool]:
        """What waits, at least one where any comes in time, and whether more may come."""
        batch: list[Entry] = []
        with contextlib.suppress(queue.Empty):
            entry = self._queue.get(timeout=_TICK_SECONDS)
            while entry is not None:
                batch.append(entry)
                if len(batch) == _MOST_TOGETHER:
                    return batch, True
                entry = self._queue.get_nowait()
            return batch, False
        return batch, True

    def _commit(self, batch: list[Entry]) -> None:
        began, lost = time.perf_counter(), self._lost
        try:
            unmade = self._append([*self._told_of_loss(lost), *batch])
        except OSError as error:
            self._failed(batch, error)
            return
        self._failing, self._lost_told = False, lost
        self._meter.recorded(len(batch) - len(unmade), time.perf_counter() - began)
        _tell([entry for entry in batch if entry not in unmade], None)
        _tell(unmade, NotRecordedError("it could not be made"))

    def _told_of_loss(self, lost: int) -> list[Entry]:
        missing = lost - self._lost_told
        told = {"kind": "lost", "time": stamp(self._clock()), "answers": missing}
        return [Entry(lambda: told)] if missing else []

    def _append(self, batch: list[Entry]) -> list[Entry]:
        """All of them on the disk but those that could not be made. Raises OSError, and none are then."""
        segment = self._current()
        head, lines, unmade = self.head, list[bytes](), list[Entry]()
        for entry in batch:
            try:
                line, head = sealed(head, entry.body())
                lines.append(line)
            except Exception as error:  # one of them must not take the others with it
                _LOG.error("an audit record could not be made: %s", type(error).__name__)
                unmade.append(entry)
        try:
            segment.append(b"".join(lines))
        finally:
            if not segment.usable:
                self._end_segment()
        self.head = head
        return unmade

    def _current(self) -> Segment:
        if self._segment is not None and self._segment.is_full(self._clock()):
            self._end_segment()
        return self._segment or self._begin()

    def _begin(self) -> Segment:
        """A new file, whose first record carries the chain on and vouches for what stands after the last one."""
        self._take_folder()
        now = self._clock()
        told = {"kind": "opened", "time": stamp(now), **self._about, "after": self._after, "left": list(self._left)}
        line, head = sealed(self.head, told)
        path = self._folder / file_name(head.sequence, now)
        self._segment = Segment.created(path, line, now, self._max_bytes)
        self.head, self._after, self._left = head, path.name, ()
        return self._segment

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._left = self._segment.close()
            self._segment = None

    def _take_folder(self) -> None:
        """One process for each folder; where another one left off is looked up once."""
        if self._lock >= 0:
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        lock = os.open(self._folder / LOCK, os.O_CREAT | os.O_RDWR, 0o640)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            resumed = resume(self._folder)
        except BlockingIOError:
            os.close(lock)
            raise OSError(errno.EBUSY, "another process writes its records there") from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        self.head, self._after, self._left = resumed.head, resumed.after, resumed.left

    def _tend(self) -> None:
        """A new file each day, also for a pod that nobody asks, and none for longer than it is to be kept."""
        now = self._clock()
        try:
            self._current()
            if now - self._swept >= _SWEEP_SECONDS:
                self._swept = now
                for told, delete in removals(self._folder, now - _DAY_SECONDS * self._retention_days()):
                    self._append([_removed(now, told)])
                    delete()
        except OSError as error:
            self._failed([], error)

    def _failed(self, batch: list[Entry], error: OSError) -> None:
        if not self._failing:
            _LOG.error("audit records cannot be written to %s: %s", self._folder, error.strerror)
        self._failing = True
        self._meter.not_recorded(len(batch))
        _tell(batch, NotRecordedError(error.strerror))


def _removed(now: float, told: Body) -> Entry:
    return Entry(lambda: {"kind": "removed", "time": stamp(now), **told})


def _tell(batch: list[Entry], error: NotRecordedError | None) -> None:
    """One wake-up of the event loop for all who wait."""
    waiting = [entry.done for entry in batch if entry.done is not None]
    if waiting:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            waiting[0].get_loop().call_soon_threadsafe(_settle, waiting, error)


def _settle(waiting: "list[asyncio.Future[None]]", error: NotRecordedError | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
