"""The one thread that writes records: what gathers while the disk works is written and synced together."""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tailhold_server.audit.record import Head, stamp
from tailhold_server.audit.retention import removals
from tailhold_server.audit.trouble import trouble
from tailhold_server.audit.writer import Body, Writer

_LOG = logging.getLogger(__name__)

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
        self._writer = Writer(folder, about, max_bytes, clock)
        self._retention_days = retention_days
        self._meter = meter
        self._clock = clock
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._lost = 0
        self._lost_told = 0
        self._swept = 0.0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    @property
    def head(self) -> Head:
        """The last record that is on the disk."""
        return self._writer.head

    def open(self) -> None:
        """Take the folder and begin a file. Raises OSError; the thread goes on trying."""
        self._writer.current()

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
        self._writer.end()

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
        told = self._told_of_loss(lost)
        try:
            places = self._writer.append([entry.body for entry in (*told, *batch)])
        except Exception as error:  # whatever it is, who waits is told, and the thread lives to try again
            self._failed(batch, error)
            return
        unmade = [(*told, *batch)[place] for place in places]
        self._works(lost)
        self._meter.recorded(len(batch) - len(unmade), time.perf_counter() - began)
        _tell([entry for entry in batch if entry not in unmade], None)
        _tell(unmade, NotRecordedError("it could not be made"))

    def _told_of_loss(self, lost: int) -> list[Entry]:
        missing = lost - self._lost_told
        told = {"kind": "lost", "time": stamp(self._clock()), "answers": missing}
        return [Entry(lambda: told)] if missing else []

    def _tend(self) -> None:
        """A new file each day, also for a pod that nobody asks, and none for longer than it is to be kept."""
        now = self._clock()
        try:
            self._writer.current()
        except Exception as error:
            self._failed([], error)
            return
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            try:
                self._sweep(now)
            except Exception as error:
                _LOG.error("old audit records of %s cannot be deleted: %s", self._writer.folder, trouble(error))

    def _sweep(self, now: float) -> None:
        for told, delete in removals(self._writer.folder, now - _DAY_SECONDS * self._retention_days()):
            self._writer.append([_removed(now, told)])
            delete()

    def _failed(self, batch: list[Entry], error: Exception) -> None:
        if not self._failing:
            _LOG.error("audit records cannot be written to %s: %s", self._writer.folder, trouble(error))
        self._failing = True
        self._meter.not_recorded(len(batch))
        _tell(batch, NotRecordedError(trouble(error)))

    def _works(self, lost: int) -> None:
        if self._failing:
            _LOG.warning("audit records are written to %s again", self._writer.folder)
        self._failing, self._lost_told = False, lost


def _removed(now: float, told: Body) -> Callable[[], Body]:
    return lambda: {"kind": "removed", "time": stamp(now), **told}


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
            done.exception()  # the journal has told of it: one that nobody waits for any more is no news
