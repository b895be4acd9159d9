"""Files that were fetched, each set whole in a folder of its own, shared by all that can see the folder.

files/<key>/            published: never changed again
partial/<key>/          being fetched, or left by a crash
locks/<key>.json        who fetches, rewritten every second as a sign of life
"""

import contextlib
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tailhold_api.codec import load_lenient
from tailhold_api.status import Progress
from tailhold_server.delivery.progress import Tell
from tailhold_server.delivery.remote import RemoteFile

LISTING = ".tailhold.json"
"""What the set has: written last, so a folder without it is not whole."""


@dataclass(frozen=True)
class Rhythm:
    """How often a sign of life is given, and how long one is waited for."""

    beat_seconds: float = 1.0
    dead_seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


USUAL = Rhythm()


class Cache:
    """A folder on one pod's disk, or on a claim that many pods share. No clock of another machine is trusted."""

    def __init__(self, root: Path, rhythm: Rhythm = USUAL) -> None:
        self._root, self._rhythm = root, rhythm

    def find(self, key: str) -> Path | None:
        """The set, if it is there and each file has its size."""
        folder = self._root / "files" / key
        try:
            listed = json.loads((folder / LISTING).read_text())["files"]
            whole = all((folder / name).stat().st_size == fact["size"] for name, fact in listed.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return folder if whole else None

    def partial(self, key: str) -> Path:
        """Where it is fetched to."""
        return self._root / "partial" / key

    def publish(self, key: str, files: Sequence[RemoteFile], origin: str) -> Path:
        """Show the set to all at once. Of two that publish the first one stays."""
        partial, folder = self.partial(key), self._root / "files" / key
        listed = {each.name: {"size": each.size, "sha256": each.sha256, "etag": each.etag} for each in files}
        (partial / LISTING).write_text(json.dumps({"origin": origin, "files": listed}, indent=1, sort_keys=True))
        folder.parent.mkdir(parents=True, exist_ok=True)
        if self.find(key) is None:
            if folder.exists():
                folder.rename(self._root / "partial" / f"{key}.broken-{uuid.uuid4().hex[:8]}")
            partial.rename(folder)
            _flush(folder.parent)
        shutil.rmtree(partial, ignore_errors=True)
        return folder

    @contextmanager
    def alone(self, key: str, tell: Tell) -> Iterator[Tell]:
        """Wait until nobody else fetches the set, or who did is silent. The Tell that is given shows others too."""
        lock = self._root / "locks" / f"{key}.json"
        lock.parent.mkdir(parents=True, exist_ok=True)
        own = f"{os.environ.get('HOSTNAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        while not _take(lock, own):
            self._wait(lock, key, tell)
        shown = _Shown(lock, own, tell)
        stop = threading.Event()
        beat = threading.Thread(target=self._beat, args=(shown, stop), daemon=True, name="fetch-lock")
        beat.start()
        try:
            yield shown.tell
        finally:
            stop.set()
            beat.join()
            shown.release()

    def _beat(self, shown: "_Shown", stop: threading.Event) -> None:
        while not stop.wait(self._rhythm.beat_seconds):
            shown.beat()

    def _wait(self, lock: Path, key: str, tell: Tell) -> None:
        """Until the lock is gone, or has not changed for long: then it is moved away, and one of the waiting wins."""
        seen, since = "", self._rhythm.clock()
        while True:
            try:
                text = lock.read_text()
            except OSError:
                return
            if text != seen:
                seen, since = text, self._rhythm.clock()
                tell(_told(text))
            elif self._rhythm.clock() - since > self._rhythm.dead_seconds:
                with contextlib.suppress(OSError):
                    aside = lock.with_suffix(f".{uuid.uuid4().hex[:8]}")
                    lock.rename(aside)
                    aside.unlink()
                return
            self._rhythm.sleep(self._rhythm.beat_seconds / 2)


class _Shown:
    """The holder's side of a lock."""

    def __init__(self, lock: Path, own: str, tell: Tell) -> None:
        self._lock, self._own, self._tell = lock, own, tell
        self._beats, self._last = 0, ""

    def tell(self, progress: Progress | None) -> None:
        self._last = progress.model_dump_json(by_alias=True) if progress else ""
        self._tell(progress)

    def beat(self) -> None:
        """A changed text is the sign of life; it is not given where somebody else has taken over."""
        self._beats += 1
        with contextlib.suppress(OSError):
            if _owner(self._lock.read_text()) == self._own:
                _write(self._lock, self._own, self._beats, self._last)

    def release(self) -> None:
        with contextlib.suppress(OSError):
            if _owner(self._lock.read_text()) == self._own:
                self._lock.unlink()


def _take(lock: Path, own: str) -> bool:
    """A link is made whole or not at all, on every file system that has links; where there are none, a new file."""
    mine = lock.with_suffix(f".{own}")
    _write(mine, own, 0, "")
    try:
        os.link(mine, lock)
    except FileExistsError:
        return False
    except OSError:
        return _create(lock, own)
    finally:
        mine.unlink(missing_ok=True)
    return True


def _create(lock: Path, own: str) -> bool:
    try:
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    os.close(handle)
    _write(lock, own, 0, "")
    return True


def _write(path: Path, own: str, beats: int, progress: str) -> None:
    aside = path.with_suffix(f".{uuid.uuid4().hex[:8]}.new")
    aside.write_text(json.dumps({"owner": own, "beats": beats, "progress": progress}))
    aside.replace(path)


def _owner(text: str) -> str:
    try:
        return str(json.loads(text)["owner"])
    except (ValueError, KeyError, TypeError):
        return ""


def _told(text: str) -> Progress:
    """What the holder says, as one's own progress: the pod waits for it."""
    try:
        return load_lenient(Progress, json.loads(json.loads(text)["progress"]))
    except (ValueError, KeyError, TypeError, ValidationError):
        return Progress(step="waiting for another pod that fetches", done=0, total=0, unit="bytes")


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError:  # some file systems flush no folder
        pass
    finally:
        os.close(handle)
