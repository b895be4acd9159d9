"""API keys out of a mounted Secret: each file's name is a client, its content that client's key."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from tailhold_server.access.watched import FilesRefusedError, entries

_HASHED = "sha256:"
_HEX = re.compile(r"[0-9a-f]{64}")
_SHORTEST = 16
"""Characters of a key: shorter ones can be guessed."""


class Keys:
    """Clients by their keys.

    They are looked up by an HMAC under a secret of this process: how long a look takes tells nothing of a key, since
    nobody outside knows what is compared.
    """

    def __init__(self, hashes: Mapping[bytes, str]) -> None:
        self._secret = secrets.token_bytes(32)
        self._clients = {self._blinded(hashed): client for hashed, client in hashes.items()}

    def client(self, token: str) -> str | None:
        """Whose key it is; None where it is nobody's."""
        return self._clients.get(self._blinded(hashlib.sha256(token.encode()).digest()))

    def _blinded(self, hashed: bytes) -> bytes:
        return hmac.digest(self._secret, hashed, "sha256")


def read_keys(folder: Path) -> Keys:
    """All keys of the folder. Raises FilesRefusedError, without a word of any key."""
    return Keys(parse_keys(entries(folder), str(folder)))


def parse_keys(values: Mapping[str, bytes], where: str) -> dict[bytes, str]:
    """Clients by the SHA-256 of their keys.

    Raises FilesRefusedError where one cannot be used: half of a table would lock clients out.
    """
    found: dict[bytes, str] = {}
    for client, value in sorted(values.items()):
        hashed = _hash(client, value)
        if hashed in found:
            raise FilesRefusedError(
                f"the clients `{found[hashed]}` and `{client}` have the same key: give each its own"
            )
        found[hashed] = client
    if not found:
        raise FilesRefusedError(f"{where} holds no key: put one in, named by its client")
    return found


def _hash(client: str, value: bytes) -> bytes:
    try:
        text = value.decode("ascii").strip()
    except UnicodeDecodeError:
        raise FilesRefusedError(f"the key of client `{client}` is not ASCII: no header can carry it") from None
    if text.startswith(_HASHED):
        if not _HEX.fullmatch(digest := text.removeprefix(_HASHED).lower()):
            raise FilesRefusedError(f"the entry of client `{client}` has to have 64 hex digits after `{_HASHED}`")
        return bytes.fromhex(digest)
    if len(text) < _SHORTEST or not text.isprintable() or " " in text:
        raise FilesRefusedError(
            f"the key of client `{client}` has to have at least {_SHORTEST} characters and no blank within"
        )
    return hashlib.sha256(text.encode()).digest()
