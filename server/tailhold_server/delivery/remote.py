"""What can be fetched from, and what of it may be."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from tailhold_api.conditions import Reason
from tailhold_server.errors import StartError

WEIGHTS = ".safetensors"
SMALL = (".json", ".txt", ".model", ".jinja", ".tiktoken")
"""Configs, tokenizers and chat templates. What can run code when it is read is in no list: it is never fetched."""
_MODULE = re.compile(r"\d+_[A-Za-z]+")
"""A folder of a sentence-transformers model, as `1_Pooling`."""
_TWICE = "consolidated"
"""Some models come with the same weights a second time, in another layout, under names that begin so."""


@dataclass(frozen=True)
class RemoteFile:
    """One file as the other side describes it."""

    name: str
    """Relative to the source, with slashes."""
    size: int
    etag: str = ""
    """Changes with the content, where the other side says so."""
    sha256: str = ""
    """Of the content, in hex; empty where the other side has none."""
    git_sha1: str = ""
    """Of the content as a git blob, which is how the hub knows small files."""

    @property
    def is_checked(self) -> bool:
        """Whether there is anything to hold the content against besides its size."""
        return bool(self.sha256 or self.git_sha1)


class TransientError(Exception):
    """Trying again may help by itself."""

    def __init__(self, message: str, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds
        """What the other side asked to wait for."""


class Remote(Protocol):
    """A place that files are fetched from. Both calls raise TransientError, or StartError where it is hopeless."""

    @property
    def title(self) -> str:
        """As a person would call it."""

    def files(self) -> Sequence[RemoteFile]:
        """All that is there."""

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Exactly these bytes of a file."""


def wanted(files: Iterable[RemoteFile], title: str) -> tuple[RemoteFile, ...]:
    """The files of a model that are fetched, by name. Raises StartError where there is no model of safetensors."""
    found = sorted((each for each in files if _is_wanted(each.name)), key=lambda each: each.name)
    weights = [each.name for each in found if each.name.endswith(WEIGHTS)]
    if not weights:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{title} has no *{WEIGHTS}: give a model that has")
    if any(not name.startswith(_TWICE) for name in weights):
        found = [each for each in found if not (each.name in weights and each.name.startswith(_TWICE))]
    return tuple(found)


def check_name(name: str, title: str) -> None:
    """Raises StartError for a name that would lead out of the folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise StartError(Reason.START_FAILED, f"{title} names a file {name!r}, which leads out of its folder: refused")


def _is_wanted(name: str) -> bool:
    *folders, last = name.split("/")
    if len(folders) > 1 or (folders and not _MODULE.fullmatch(folders[0])):
        return False
    return last.endswith((WEIGHTS, *SMALL)) and not last.startswith(".")
