"""The folder of uploads: each file under the digest of itself, so that pods share it without locks.

files/ID/         an uploaded file (entry.py), there as a whole or not at all
batches/ID.json   files that were added together, for a month
gone/ID.json      where a file that was deleted stood in lists, for a day
coming/           what is being uploaded or taken away; a crash leaves something here alone
lock              held while a file is published, so that there are never more than may be
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from pydantic import BaseModel

from tailhold_server.errors import Failure, ServeError
from tailhold_server.uploads.entry import (
    ADDED,
    ATTRIBUTES,
    CONTENT,
    About,
    Added,
    Described,
    Entry,
    Mark,
    open_content,
    read_entry,
)
from tailhold_server.uploads.incoming import Incoming
from tailhold_server.uploads.known import Known
from tailhold_server.uploads.left import Batch, Batches, Gone, Stood
from tailhold_server.uploads.names import is_id
from tailhold_server.uploads.turn import Turn
from tailhold_server.uploads.volume import BrokenError, asked, clear, entries, put, refused, take_away, touch

FILES, BATCHES, GONE, COMING, LOCK = "files", "batches", "gone", "coming", "lock"
LEFT_SECONDS = 3600.0
"""What got no byte for so long has no writer any more: a silent client is sent away much sooner, but clocks differ and
volumes stall."""
CLEAR_SECONDS = 3600.0
"""Between two looks for what has stayed long enough."""
_LOG = logging.getLogger(__name__)


class Folder:
    """All of it. Every call is slow: off the event loop. What the volume refuses is a ServeError."""

    def __init__(self, root: Path) -> None:
        self._folders = [root / name for name in (FILES, BATCHES, GONE, COMING)]
        self._files, batches, gone, self._coming = self._folders
        self._batches, self._gone = Batches(batches, self._coming), Gone(gone, self._coming)
        self._known = Known(self._files)
        self._turn = Turn(root / LOCK)
        self._cleared = float("-inf")
        self._told: frozenset[str] = frozenset()

    def prepare(self, now: float) -> None:
        """Make the folders, and clear away what was left half way."""
        for folder in self._folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError as error:
                told = f"`{folder.name}` on the volume of `corpus.uploads` is no folder: take it away."
                raise ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=30) from error
            except OSError as error:
                raise refused(error) from error
        with asked():
            left = [each for each in entries(self._coming) if now - _last_touched(each) > LEFT_SECONDS]
        for each in left:
            clear(each)
        if now - self._cleared >= CLEAR_SECONDS:
            with asked():
                self._batches.clear(now)
                self._gone.clear(now)
            self._cleared = now

    def receive(self, most: int | None = None) -> Incoming:
        """A place for a file that comes; it is published where no more than so many are there then."""
        return Incoming(self._files, self._coming, self._turn, most)

    def count(self) -> int:
        """How many files are there, whole or not."""
        return len(self._names())

    def entry(self, name: str) -> Entry | None:
        """An uploaded file. Raises ServeError for one that is damaged."""
        with _told(name), asked(), suppress(FileNotFoundError):
            return read_entry(self._files / name) if is_id(name) else None
        return None

    def entries(self, changed: str | None = None) -> dict[str, Entry]:
        """All that are whole; with `changed` as they were at the last look, but for this one.

        One that is damaged takes no other away: the log names it, once.
        """
        seen = self._known.look() if changed is None else self._known.look_at(changed)
        for name in seen.damaged.keys() - self._told:
            _LOG.error("the uploaded file %s is damaged and left out: %s", name, seen.damaged[name])
        self._told = frozenset(seen.damaged)
        return dict(seen.whole)

    def survey(self) -> tuple[dict[str, Entry], dict[str, str]]:
        """All that are whole, and what is wrong with those that are damaged, read afresh."""
        whole, damaged = {}, {}
        for name in self._names():
            try:
                with asked(), suppress(FileNotFoundError):
                    whole[name] = read_entry(self._files / name)
            except BrokenError as error:
                damaged[name] = str(error)
        return whole, damaged

    def corpus(self, changed: str | None = None) -> dict[str, tuple[About, Added]]:
        """Those of them that belong to the corpus."""
        return {name: (each.about, each.added) for name, each in self.entries(changed).items() if each.added}

    def content(self, name: str) -> tuple[About, BufferedReader] | None:
        """A file and its bytes, which stay readable when it is deleted. Raises ServeError for one that is damaged."""
        with _told(name), asked(), suppress(FileNotFoundError):
            return open_content(self._files / name) if is_id(name) else None
        return None

    def path(self, name: str) -> Path:
        """Where its bytes are."""
        return self._files / name / CONTENT

    def is_there(self, name: str) -> bool:
        """Whether there is anything of that name, damaged or not."""
        with asked():
            return is_id(name) and os.path.lexists(self._files / name)

    def remove(self, name: str) -> bool:
        """Take a file away, damaged or not, and its place in the corpus with it. Whether there was one."""
        with asked():
            self._note(name)
            return is_id(name) and take_away(self._files / name, self._coming)

    def add(self, name: str, added: Added) -> bool:
        """Make a file part of the corpus; one that is stays so since then. Whether there is such a file."""
        entry = self.entry(name)
        if entry is None or not self._describe(name, added.attributes):
            return False
        return entry.added is not None or self._put(name, ADDED, Mark(created_at=added.created_at))

    def describe(self, name: str, attributes: dict[str, str | float | bool]) -> bool:
        """Change the attributes of a file of the corpus. Whether there is such a file."""
        entry = self.entry(name)
        return entry is not None and entry.added is not None and self._describe(name, attributes)

    def take_out(self, name: str) -> bool:
        """Take a file out of the corpus. Whether it was in it."""
        with asked(), suppress(NotADirectoryError):
            self._note(name)
            was = is_id(name) and take_away(self._files / name / ADDED, self._coming)
            touch(self._files)
            return was
        return False

    def stood(self, name: str) -> Stood | None:
        """Where a file that is gone stood in lists; None where nobody knows any more."""
        return self._gone.stood(name) if is_id(name) else None

    def batch(self, name: str) -> Batch | None:
        """Files that were added together."""
        with asked():
            return self._batches.batch(name) if is_id(name) else None

    def keep_batch(self, name: str, batch: Batch) -> None:
        """Remember them."""
        with asked():
            self._batches.keep(name, batch)

    def _note(self, name: str) -> None:
        with suppress(BrokenError, OSError):
            if is_id(name):
                self._gone.note(name, read_entry(self._files / name))

    def _names(self) -> list[str]:
        with asked():
            return sorted(each.name for each in entries(self._files) if is_id(each.name))

    def _describe(self, name: str, attributes: dict[str, str | float | bool]) -> bool:
        return self._put(name, ATTRIBUTES, Described(attributes=attributes))

    def _put(self, name: str, what: str, said: BaseModel) -> bool:
        """Whether the file is there: where it was taken away meanwhile nothing is left of this either."""
        with asked():
            try:
                put(self._files / name / what, said.model_dump_json().encode(), self._coming)
                touch(self._files)
            except FileNotFoundError:
                if not self._coming.is_dir():
                    raise
                return False
        return True


def _last_touched(path: Path) -> float:
    """In seconds since the epoch; that of its content, which grows, where it has one. One that is gone is new."""
    times = []
    for each in (path, path / CONTENT):
        with suppress(OSError):
            times.append(each.lstat().st_mtime)
    return max(times, default=float("inf"))


@contextmanager
def _told(name: str) -> Iterator[None]:
    """A damaged file in the words of who asks for it."""
    try:
        yield
    except BrokenError as error:
        told = f"`{name}` is damaged on the volume: {error}. Delete it, or upload it again."
        raise ServeError(Failure.NOT_FOUND, told, param="file_id", code="file_damaged") from None
