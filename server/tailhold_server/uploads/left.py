"""What stays on the volume beside the files for a while: batches, and where deleted files stood in lists."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tailhold_server.uploads.entry import Entry, read_json
from tailhold_server.uploads.volume import BrokenError, clear, entries, put

BATCH_SECONDS = 30 * 86400.0
"""So long a batch can be asked for after it was made or cancelled; its files stay as they are."""
GONE_SECONDS = 86400.0
"""So long a walk through a list goes on behind a file that was deleted."""


class Batch(BaseModel):
    """Files that were added together."""

    model_config = ConfigDict(frozen=True)

    created_at: int
    file_ids: tuple[str, ...]
    cancelled: tuple[str, ...] = ()


class Stood(BaseModel):
    """Where a file that is gone stood in lists, in seconds since the epoch; None where it was in no such list."""

    model_config = ConfigDict(frozen=True)

    created_at: int | None = None
    added_at: int | None = None


class Batches:
    """`batches/ID.json`."""

    def __init__(self, folder: Path, coming: Path) -> None:
        self._folder, self._coming = folder, coming

    def batch(self, name: str) -> Batch | None:
        """None for one that was never made, or is too old. Raises OSError."""
        with suppress(BrokenError):
            return read_json(Batch, self._path(name))
        return None

    def keep(self, name: str, batch: Batch) -> None:
        """Raises OSError."""
        put(self._path(name), batch.model_dump_json().encode(), self._coming)

    def clear(self, now: float) -> None:
        """Those that are too old. Raises OSError."""
        _clear(self._folder, lambda touched: now - touched > BATCH_SECONDS)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


class Gone:
    """`gone/ID.json`. What goes wrong here holds no deletion up."""

    def __init__(self, folder: Path, coming: Path) -> None:
        self._folder, self._coming = folder, coming

    def note(self, name: str, entry: Entry) -> None:
        """Where a file that is about to go stands."""
        added = entry.added.created_at if entry.added else (self.stood(name) or Stood()).added_at
        told = Stood(created_at=entry.about.created_at, added_at=added)
        with suppress(OSError):
            put(self._path(name), told.model_dump_json().encode(), self._coming, lasts=False)

    def stood(self, name: str) -> Stood | None:
        """None where nobody knows any more."""
        with suppress(BrokenError, OSError):
            return read_json(Stood, self._path(name))
        return None

    def clear(self, now: float) -> None:
        """Those that are too old. Raises OSError."""
        _clear(self._folder, lambda touched: now - touched > GONE_SECONDS)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _clear(folder: Path, is_old: Callable[[float], bool]) -> None:
    for each in entries(folder):
        with suppress(OSError):
            if is_old(each.lstat().st_mtime):
                clear(each)
