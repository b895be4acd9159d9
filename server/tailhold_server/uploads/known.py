"""What is known of the uploaded files, so that a look reads those alone that changed.

A folder's times change with whatever is renamed into it or out of it, and who changes a file touches the folder of all
files too: where that one is as before, nothing is read. Times of a volume have steps, up to two seconds wide, so what
was read less than two seconds after its times were first seen is read once more. What somebody else wrote into a file
changes no folder: everything is read again after a while, some of it with each look.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_server.uploads.entry import Entry, entry_in
from tailhold_server.uploads.names import is_id
from tailhold_server.uploads.volume import BrokenError, asked, entries, opened_folder

STEP_SECONDS = 2.0
"""The widest step of a volume's times."""
AGAIN_SECONDS = 60.0
"""After which a file is read again though nothing tells that it changed."""
_SHARE = 10
"""One of so many files is read again with a look, at most."""

Times = tuple[int, int, int]


@dataclass(frozen=True)
class Seen:
    """One look: all that are whole, and what is wrong with those that are damaged."""

    whole: Mapping[str, Entry]
    damaged: Mapping[str, str]


@dataclass(frozen=True)
class _Read:
    """A file as it was read, and between which times, in seconds of this process."""

    times: Times | None
    """None for one that is damaged: it is read each time."""
    first_seen: float
    read: float
    entry: Entry | None
    damage: str = ""

    def holds(self, times: Times) -> bool:
        return self.times == times and self.read - self.first_seen >= STEP_SECONDS


class Known:
    """Every call is slow: off the event loop, from any thread. What the volume refuses is a ServeError."""

    def __init__(self, files: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._read: dict[str, _Read] = {}
        self._times: Times | None = None
        """Of the folder of all files, as of the last whole look; None before there was one, or any folder."""
        self._first_seen = clock()
        self._is_settled = False

    def look(self) -> Seen:
        """All files as they are now."""
        with self._lock:
            with asked():
                self._look()
            return self._seen()

    def look_at(self, name: str) -> Seen:
        """The same as of the last look, but for this file, which is as it is now."""
        with self._lock:
            with asked():
                if self._times is None:
                    self._look()
                else:
                    self._look_at(name)
            return self._seen()

    def _look(self) -> None:
        now = self._clock()
        times = _times_of(self._files)
        if times != self._times:
            self._times, self._first_seen, self._is_settled = times, now, False
        if not self._is_settled:
            self._look_at_all()
            self._is_settled = now - self._first_seen >= STEP_SECONDS
        self._read_again(now)

    def _look_at_all(self) -> None:
        names = {each.name for each in entries(self._files) if is_id(each.name)}
        for name in self._read.keys() - names:
            del self._read[name]
        for name in names:
            self._look_at(name)

    def _look_at(self, name: str, *, again: bool = False) -> None:
        before, now = self._read.get(name), self._clock()
        try:
            with opened_folder(self._files / name) as folder:
                times = _times(folder)
                if before is not None and before.holds(times) and not again:
                    return
                first = before.first_seen if before is not None and before.times == times else now
                self._read[name] = _Read(times, first, now, entry_in(folder))
        except FileNotFoundError:
            self._read.pop(name, None)
        except BrokenError as error:
            self._read[name] = _Read(None, now, now, None, str(error))

    def _read_again(self, now: float) -> None:
        due = sorted((each.read, name) for name, each in self._read.items() if now - each.read >= AGAIN_SECONDS)
        for _, name in due[: 1 + len(self._read) // _SHARE]:
            self._look_at(name, again=True)

    def _seen(self) -> Seen:
        ordered = sorted(self._read.items())
        whole = {name: each.entry for name, each in ordered if each.entry is not None}
        return Seen(whole, {name: each.damage for name, each in ordered if each.entry is None})


def _times(folder: int) -> Times:
    facts = os.fstat(folder)
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns


def _times_of(path: Path) -> Times | None:
    """None where it is not there. It is opened, since a network's volume answers that afresh, and a mere look not."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _times(handle)
    finally:
        os.close(handle)
