"""The chain of one pod as its process writes it, whatever becomes of the folder meanwhile."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailhold_server.audit.files import Resumed, file_name, resume
from tailhold_server.audit.lock import FolderLock
from tailhold_server.audit.record import START, Head, sealed, stamp
from tailhold_server.audit.segment import Segment, sync

_LOG = logging.getLogger(__name__)

Body = Mapping[str, Any]


class Writer:
    """Called by one thread. Each call that raises may be made again: what was removed, filled or locked meanwhile is
    looked at anew, and the chain goes on after the last record that this process knows to have been written."""

    def __init__(self, folder: Path, about: Body, max_bytes: int, clock: Callable[[], float]) -> None:
        self.head: Head = START
        """The last record that is on the disk."""
        self.folder = folder
        self._about = about
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock: FolderLock | None = None
        self._segment: Segment | None = None
        self._found: Resumed | None = None
        """What stands in the folder; None where it has to be looked at."""

    def append(self, bodies: Sequence[Callable[[], Body]]) -> list[int]:
        """All of them on the disk but those that could not be made, whose places are returned. Raises OSError, and
        none are then."""
        segment = self.current()
        head, lines, unmade = self.head, list[bytes](), list[int]()
        for place, body in enumerate(bodies):
            try:
                line, head = sealed(head, body())
                lines.append(line)
            except Exception as error:  # one of them must not take the others with it
                _LOG.error("an audit record could not be made: %s", type(error).__name__)
                unmade.append(place)
        try:
            segment.append(b"".join(lines))
        finally:
            if not segment.usable:
                self._end_segment(is_whole=False)
        self.head = head
        return unmade

    def current(self) -> Segment:
        """The file that is written to, a new one where the last is full or gone. Raises OSError."""
        if self._segment is not None:
            if not self._segment.is_there():
                self._end_segment(is_whole=False)
            elif self._segment.is_full(self._clock()):
                self._end_segment(is_whole=True)
        return self._segment or self._begin()

    def end(self) -> None:
        """Let go of the folder."""
        self._end_segment(is_whole=True)
        self._release()

    def _begin(self) -> Segment:
        """A new file, whose first record carries the chain on and vouches for what stands after the last one."""
        found, now = self._taken(), self._clock()
        before, gone = _carried(self.head, found.head)
        told = {"after": found.after, "left": list(found.left), **gone}
        line, head = sealed(before, {"kind": "opened", "time": stamp(now), **self._about, **told})
        path = self.folder / file_name(head.sequence, now)
        self._found = None  # until it is there: a disk that fails may leave a part of it
        self._segment = Segment.created(path, line, now, self._max_bytes)
        self.head = head
        if gone:
            _LOG.error(
                "audit records %d to %d are gone from %s: they were removed while the server ran. Put the files back,"
                " or find out who took them; `tailhold audit verify` will name them as missing",
                *gone["gone"].values(),
                self.folder,
            )
        return self._segment

    def _taken(self) -> Resumed:
        """One process for each folder, and what it finds there. Raises OSError."""
        if self._lock is None or not self._lock.is_there():
            self._release()
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._lock, self._found = FolderLock(self.folder), None
        if self._found is None:
            self._found = resume(self.folder)
            if self._found.after:
                sync(self.folder / self._found.after)  # another process may have died before it did
        return self._found

    def _end_segment(self, *, is_whole: bool) -> None:
        if self._segment is not None:
            self._segment.close()
            self._found = Resumed(self.head, self._segment.path.name, ()) if is_whole else None
            self._segment = None

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _carried(known: Head, found: Head) -> tuple[Head, dict[str, Any]]:
    """The record that the next one follows, and what it says is missing: a chain whose end was removed while its
    process ran does not begin anew."""
    if found.sequence >= known.sequence:
        return found, {}
    return known, {"gone": {"first": found.sequence + 1, "last": known.sequence}}
