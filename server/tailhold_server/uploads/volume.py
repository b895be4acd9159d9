"""The volume of uploads: reads that follow no link, writes that last, and what it refuses."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from tailhold_server.errors import Failure, ServeError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ODD = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ESTALE}
)
"""What is wrong with one name; every other error is the volume's."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BrokenError(Exception):
    """What lies there is nothing that we wrote. The text names it and says what it is."""


@contextmanager
def asked() -> Iterator[None]:
    """What the volume refuses is a ServeError."""
    try:
        yield
    except OSError as error:
        raise refused(error) from error


def refused(error: OSError) -> ServeError:
    """In the words of the spec's field."""
    if error.errno in _FULL:
        return ServeError(Failure.FULL, "The volume of `corpus.uploads` is full: delete files, or enlarge the claim.")
    told = f"The volume of `corpus.uploads` cannot be used: {error.strerror}. Check `corpus.uploads.pvc`."
    return ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=30)


@contextmanager
def opened_folder(place: Path) -> Iterator[int]:
    """A descriptor of a folder, which stays the same one whatever is renamed meanwhile.

    Raises FileNotFoundError where there is none, or no more; BrokenError for anything else of that name; OSError.
    """
    try:
        handle = os.open(place, _READ | os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _ODD or error.errno == errno.ENOENT or not place.parent.is_dir():
            raise
        raise BrokenError(f"it is no folder that can be read ({error.strerror})") from None
    try:
        yield handle
    except BrokenError:
        if _is_elsewhere(place, handle):
            raise FileNotFoundError(errno.ENOENT, "it was taken away", str(place)) from None
        raise
    finally:
        os.close(handle)


def _is_elsewhere(place: Path, handle: int) -> bool:
    try:
        return not os.path.samestat(place.lstat(), os.fstat(handle))
    except OSError:
        return True


def open_plain(name: str | Path, folder: int | None = None) -> BufferedReader:
    """A plain file, within a folder or by its path, read to the end whatever is renamed or removed meanwhile.

    Raises BrokenError for a link, a pipe, a folder, or nothing at all; OSError where the volume fails.
    """
    try:
        handle = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno not in _ODD:
            raise
        raise BrokenError(f"`{Path(name).name}`: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BrokenError(f"`{Path(name).name}` is no plain file")
    return os.fdopen(handle, "rb")


def size_of(name: str, folder: int) -> int:
    """Bytes of a plain file within a folder. Raises BrokenError, OSError."""
    with open_plain(name, folder) as file:
        return os.fstat(file.fileno()).st_size


def write_new(path: Path, data: bytes) -> None:
    """A file that lasts, where there is none of the name."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def put(path: Path, data: bytes, coming: Path, *, lasts: bool = True) -> None:
    """A file as a whole in place of what had its name. Where it need not last, nobody waits for the disk."""
    aside = coming / secrets.token_hex(16)
    try:
        if lasts:
            write_new(aside, data)
        else:
            aside.write_bytes(data)
        aside.rename(path)
        if lasts:
            settle(path.parent)
    except OSError:
        clear(aside)
        raise


def settle(folder: Path) -> None:
    """What was renamed stays renamed, whatever happens to the node."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def touch(folder: Path) -> None:
    """Its times tell that something deeper in it has changed."""
    os.utime(folder)


def take_away(path: Path, coming: Path) -> bool:
    """Whether there was anything. It is gone, whatever it was, with one rename; what it held is cleared after that."""
    aside = coming / secrets.token_hex(16)
    try:
        path.rename(aside)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise  # it is the other folder that is missing
        return False
    with suppress(FileNotFoundError):  # its folder went the same way
        settle(path.parent)
    clear(aside)
    return True


def clear(path: Path) -> None:
    """Remove a folder, a file or a link, as far as the volume lets us."""
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def entries(folder: Path) -> list[Path]:
    """What is in it; nothing where it is not there."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
