"""API keys out of a mounted Secret: each file's name is a client, its content that client's key."""

import hashlib
import hmac
import re
import secrets
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_server.access.watched import FilesRefusedError, files_of, read_file

_HASHED = "sha256:"
_HEX = re.compile(r"[0-9a-f]{64}")
_SHORTEST = 16
"""Characters of a key: shorter ones can be guessed."""


@dataclass(frozen=True)
class Entries:
    """What a Secret's entries come to, each on its own: one that cannot be used shuts its own client out, no other."""

    clients: Mapping[bytes, str]
    """By the SHA-256 of their keys."""
    shut_out: Mapping[str, str]
    """Clients whose entries cannot be used, and why, without a word of any key."""


class Keys:
    """Clients by their keys.

    They are looked up by an HMAC under a secret of this process: how long a look takes tells nothing of a key, since
    nobody outside knows what is compared.
    """

    def __init__(self, entries: Entries, *, is_whole: bool = True) -> None:
        self.is_whole = is_whole
        """Whether every entry could be read, be it that it cannot be used."""
        self.shut_out = entries.shut_out
        self._secret = secrets.token_bytes(32)
        self._clients = {self._blinded(hashed): client for hashed, client in entries.clients.items()}

    def __len__(self) -> int:
        return len(self._clients)

    def client(self, token: str) -> str | None:
        """Whose key it is; None where it is nobody's."""
        return self._clients.get(self._blinded(hashlib.sha256(token.encode()).digest()))

    def _blinded(self, hashed: bytes) -> bytes:
        return hmac.digest(self._secret, hashed, "sha256")


def read_keys(folder: Path) -> Keys:
    """All keys of the folder. Raises OSError where that cannot be read."""
    values, unread, is_whole = dict[str, bytes](), dict[str, str](), True
    for path in files_of(folder):
        try:
            values[path.name] = read_file(path)
        except FileNotFoundError:
            continue  # taken out since
        except FilesRefusedError as error:
            unread[path.name] = str(error)
        except OSError as error:
            unread[path.name] = f"the entry of client `{path.name}` cannot be read: {error.strerror}"
            is_whole = False
    return Keys(parse_keys(values, unread), is_whole=is_whole)


def lacking(keys: Keys, folder: Path) -> str:
    """What is wrong with them; empty for nothing."""
    if keys.shut_out:
        who = ", ".join(f"`{client}`" for client in keys.shut_out)
        why = "; ".join(dict.fromkeys(keys.shut_out.values()))
        return f"{folder}: shut out until their entries are put right: {who}: {why}"
    return "" if keys else f"{folder} holds no key, so everybody is turned away: put one in, named by its client"


def parse_keys(values: Mapping[str, bytes], unread: Mapping[str, str]) -> Entries:
    """Who has which key. Two clients with one key are both shut out: nobody could tell which of them asks."""
    owners, shut_out = defaultdict[bytes, list[str]](list), dict(unread)
    for client, value in sorted(values.items()):
        try:
            owners[_hash(client, value)].append(client)
        except FilesRefusedError as error:
            shut_out[client] = str(error)
    for several in (each for each in owners.values() if len(each) > 1):
        names = " and ".join(f"`{client}`" for client in several)
        shut_out |= dict.fromkeys(several, f"the clients {names} have the same key: give each its own")
    return Entries({hashed: first for hashed, (first, *more) in owners.items() if not more}, shut_out)


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
