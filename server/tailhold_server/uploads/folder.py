"""The folder of uploads: each file under the digest of itself, so that pods share it without locks.

files/ID/content, files/ID/about.json   what was uploaded, there as a whole or not at all
added/ID.json                           it belongs to the corpus
deleted/ID                              it must not be found, whatever snapshot is in force
batches/ID.json                         files that were added together
coming/                                 what is being uploaded; a crash leaves something here alone
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tailhold_server.errors import Failure, ServeError, invalid

FILES, ADDED, DELETED, BATCHES, COMING = "files", "added", "deleted", "batches", "coming"
CONTENT, ABOUT = "content", "about.json"
NAME_CHARACTERS = 255
_ID = re.compile(r"(file-[0-9a-f]{32}|vsfb_[0-9a-f]{32})")
_LEFT_SECONDS = 86400
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
Kept = TypeVar("Kept", bound=BaseModel)


class About(BaseModel):
    """What is known of an uploaded file."""

    model_config = ConfigDict(frozen=True)

    filename: str
    """As the client said it."""
    purpose: str
    bytes: int
    sha256: str
    created_at: int


class Added(BaseModel):
    """A file that belongs to the corpus."""

    model_config = ConfigDict(frozen=True)

    created_at: int
    attributes: dict[str, str | float | bool] = {}


class Batch(BaseModel):
    """Files that were added together."""

    model_config = ConfigDict(frozen=True)

    created_at: int
    file_ids: tuple[str, ...]
    cancelled: tuple[str, ...] = ()


def shown_name(filename: str) -> str:
    """The last step of what the client called it, without what cannot be printed: a step of a path, and no more."""
    name = _UNSAFE.sub("", re.split(r"[/\\]", filename)[-1]).strip()
    name = name.encode()[-NAME_CHARACTERS:].decode(errors="ignore")  # the end tells how it is read
    return "unnamed" if name in ("", ".", "..") else name


class Folder:
    """All of it. Every call is slow: off the event loop. What the volume refuses is a ServeError."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def prepare(self, now: float) -> None:
        """Make the folders, and clear away what was left half way."""
        for name in (FILES, ADDED, DELETED, BATCHES, COMING):
            _made(self._root / name)
        for left in _entries(self._root / COMING):
            with suppress(OSError):
                if now - left.stat().st_mtime > _LEFT_SECONDS:
                    shutil.rmtree(left)

    def receive(self) -> "Incoming":
        """A place for a file that comes."""
        return Incoming(self._root)

    def about(self, name: str) -> About | None:
        """Of an uploaded file."""
        return _read(About, self._root / FILES / name / ABOUT) if _ID.fullmatch(name) else None

    def abouts(self) -> dict[str, About]:
        """Of all uploaded files."""
        found = ((each, self.about(each)) for each in self.names(FILES))
        return {name: about for name, about in found if about}

    def content(self, name: str) -> Path:
        """Where its bytes are."""
        return self._root / FILES / name / CONTENT

    def names(self, kind: str) -> list[str]:
        """What is there of a kind, sorted."""
        found = (each.name.removesuffix(".json") for each in _entries(self._root / kind))
        return sorted(name for name in found if _ID.fullmatch(name))

    def remove(self, name: str) -> None:
        """Take a file away, with its place in the corpus. First it can be found no more."""
        self.take_out(name)
        aside = self._root / COMING / secrets.token_hex(16)
        try:
            (self._root / FILES / name).rename(aside)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _refused(error) from error
        shutil.rmtree(aside, ignore_errors=True)

    def add(self, name: str, added: Added) -> None:
        """Make a file part of the corpus; one that was taken out before is one again."""
        self._write(ADDED, f"{name}.json", added.model_dump_json())
        with suppress(FileNotFoundError):
            (self._root / DELETED / name).unlink()

    def added(self, name: str) -> Added | None:
        """Its place in the corpus."""
        return _read(Added, self._root / ADDED / f"{name}.json") if _ID.fullmatch(name) else None

    def all_added(self) -> dict[str, Added]:
        """All of the corpus."""
        found = ((each, self.added(each)) for each in self.names(ADDED))
        return {name: added for name, added in found if added}

    def take_out(self, name: str) -> None:
        """Take a file out of the corpus. The mark of its deletion is there before its place is gone."""
        if self.added(name) is None:
            return
        self._write(DELETED, name, "")
        with suppress(FileNotFoundError):
            (self._root / ADDED / f"{name}.json").unlink()

    def batch(self, name: str) -> Batch | None:
        """Files that were added together."""
        return _read(Batch, self._root / BATCHES / f"{name}.json") if _ID.fullmatch(name) else None

    def keep_batch(self, name: str, batch: Batch) -> None:
        """Remember them."""
        self._write(BATCHES, f"{name}.json", batch.model_dump_json())

    def _write(self, kind: str, name: str, text: str) -> None:
        aside = self._root / COMING / secrets.token_hex(16)
        try:
            _write(aside, text.encode())
            aside.rename(self._root / kind / name)
            _settle(self._root / kind)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise _refused(error) from error


class Incoming:
    """A file that comes. Nothing of it is seen before `finish`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._aside = root / COMING / secrets.token_hex(16)
        self._sha = hashlib.sha256()
        self.bytes = 0
        try:
            self._aside.mkdir(parents=True)
            self._file = (self._aside / CONTENT).open("xb")
        except OSError as error:
            raise _refused(error) from error

    def write(self, data: bytes) -> None:
        """The next piece."""
        try:
            self._file.write(data)
        except OSError as error:
            raise _refused(error) from error
        self._sha.update(data)
        self.bytes += len(data)

    def finish(self, filename: str, purpose: str, now: int) -> tuple[str, About]:
        """Publish it under its id; the same name and bytes are the same file, which stays as it was."""
        about = About(
            filename=filename, purpose=purpose, bytes=self.bytes, sha256=self._sha.hexdigest(), created_at=now
        )
        name = upload_id(filename, about.sha256)
        place = self._root / FILES / name
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            _write(self._aside / ABOUT, about.model_dump_json().encode())
            _settle(self._aside)
            self._publish(place)
        except OSError as error:
            raise _refused(error) from error
        finally:
            self.abandon()
        return name, _read(About, place / ABOUT) or about

    def _publish(self, place: Path) -> None:
        try:
            self._aside.rename(place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        _settle(place.parent)

    def abandon(self) -> None:
        """Leave nothing of it."""
        with suppress(OSError):
            self._file.close()
        shutil.rmtree(self._aside, ignore_errors=True)


def upload_id(filename: str, sha256: str) -> str:
    """The same for the same name and bytes, on every pod."""
    digest = hashlib.sha256(f"{sha256}\0{filename}".encode(errors="surrogatepass")).hexdigest()
    return f"file-{digest[:32]}"


def staged_digest(added: Iterator[str] | list[str]) -> str:
    """Of a corpus by the ids of its files; empty for none."""
    names = sorted(added)
    return hashlib.sha256("\n".join(names).encode()).hexdigest() if names else ""


def _read(kind: type[Kept], path: Path) -> Kept | None:
    """What somebody else wrote there is as good as nothing."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None
    except OSError as error:
        raise _refused(error) from error


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _refused(error) from error


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refused(error) from error


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _settle(folder: Path) -> None:
    """What was renamed stays renamed, whatever happens to the node."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refused(error: OSError) -> ServeError:
    if error.errno in _FULL:
        return ServeError(Failure.FULL, "The volume of `corpus.uploads` is full: delete files, or enlarge the claim.")
    told = f"The volume of `corpus.uploads` cannot be used: {error.strerror}. Check `corpus.uploads.pvc`."
    return ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=30)


def known(value: Any, name: str) -> Any:
    """The value, or the 404 for an id that there is none of."""
    if value is None:
        raise ServeError(Failure.NOT_FOUND, f"No such {name}.", param=f"{name.replace(' ', '_')}_id")
    return value


def too_many(most: int) -> ServeError:
    """Beyond `corpus.uploads.maxFiles`."""
    return invalid(f"There are {most} files, which is `corpus.uploads.maxFiles`: delete some", code="too_many_files")
