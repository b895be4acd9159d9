"""What files are called: by clients, on the wire and on the volume."""

import hashlib
import re
from collections.abc import Iterable

from tailhold_server.errors import invalid

MOST_NAME_BYTES = 4096
"""Of what a client calls a file: the longest path of most systems."""
NAME_CHARACTERS = 255
_ID = re.compile(r"(file-[0-9a-f]{32}|vsfb_[0-9a-f]{32})")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_id(name: str) -> bool:
    """Whether it is an id that we gave: no other name is ever looked for on the volume."""
    return _ID.fullmatch(name) is not None


def upload_id(filename: str, sha256: str) -> str:
    """The same for the same name and bytes, on every pod."""
    digest = hashlib.sha256(f"{sha256}\0{filename}".encode(errors="surrogatepass")).hexdigest()
    return f"file-{digest[:32]}"


def staged_digest(added: Iterable[str]) -> str:
    """Of a corpus by the ids of its files; empty for none."""
    names = sorted(added)
    return hashlib.sha256("\n".join(names).encode()).hexdigest() if names else ""


def checked_name(filename: str, param: str) -> str:
    """What a client calls a file. Raises ServeError where it is empty or longer than any path."""
    if not filename:
        raise invalid(f"`{param}` is missing, or has no name", param)
    size = len(filename.encode(errors="surrogatepass"))
    if size > MOST_NAME_BYTES:
        raise invalid(f"`{param}` has a name of {size} bytes: give one of at most {MOST_NAME_BYTES}", param)
    return filename


def shown_name(filename: str) -> str:
    """The last step of what the client called it, without what cannot be printed: a step of a path, and no more."""
    name = _UNSAFE.sub("", re.split(r"[/\\]", filename)[-1]).strip()
    name = name.encode()[-NAME_CHARACTERS:].decode(errors="ignore")  # the end tells how it is read
    return "unnamed" if name in ("", ".", "..") else name
