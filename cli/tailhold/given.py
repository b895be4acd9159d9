"""Files that users name: read as a whole where they are plain, and refused by name where they are not."""

import stat
from pathlib import Path

MOST_BYTES = 64 << 20
"""Of a file that is read into memory: no manifest, key or list of questions comes near."""
_OPENED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What a shell has opened already, as `<(...)` does: nobody waits for its writer for ever."""
_NO_FILE = {
    stat.S_ISDIR: "is a folder",
    stat.S_ISFIFO: "is a pipe, which may never end: write it to a file",
    stat.S_ISSOCK: "is a socket",
    stat.S_ISCHR: "is a device",
    stat.S_ISBLK: "is a device",
}


class GivenError(Exception):
    """A file that cannot be taken; for the user."""


def check_given(path: Path) -> None:
    """Raises GivenError for what is no file that can be read, before anybody waits for it."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if str(path).startswith(_OPENED):
        return
    for is_such, words in _NO_FILE.items():
        if is_such(mode):
            raise GivenError(f"{path} {words}; give a file")


def read_given(path: Path) -> bytes:
    """Its bytes. Raises GivenError."""
    check_given(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if len(data) > MOST_BYTES:
        raise GivenError(f"{path} has more than {MOST_BYTES >> 20} MiB: it is no such file")
    return data


def text_given(path: Path) -> str:
    """The same as text. Raises GivenError."""
    try:
        return read_given(path).decode()
    except UnicodeDecodeError as error:
        raise GivenError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


def check_utf8(what: str, text: str) -> None:
    """Raises GivenError for an argument that the shell gave as other bytes: nothing could be named so."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise GivenError(f"{what} {text!r} is no UTF-8: a snapshot's documents have names in UTF-8 alone") from None


def _unreadable(path: Path, error: OSError | ValueError) -> GivenError:
    words = error.strerror if isinstance(error, OSError) else str(error)
    return GivenError(f"{path} cannot be read: {words}")
