"""One uploaded file on the volume: the only place that says what state it is in.

content           its bytes
about.json        what is known of it
added.json        it belongs to the corpus
attributes.json   what filters may ask of it; of no account without the mark before

All of it is in one folder, so that one rename publishes a file and one takes it away, its mark with it. A file that was
added and is not there cannot be; nor can changed attributes bring back one that was taken out.
"""

import os
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tailhold_server.uploads.volume import BrokenError, open_plain, opened_folder, size_of

CONTENT, ABOUT, ADDED, ATTRIBUTES = "content", "about.json", "added.json", "attributes.json"
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


class Mark(BaseModel):
    """That a file belongs to the corpus."""

    model_config = ConfigDict(frozen=True)

    created_at: int


class Described(BaseModel):
    """What filters may ask of a file."""

    model_config = ConfigDict(frozen=True)

    attributes: dict[str, str | float | bool] = {}


@dataclass(frozen=True)
class Added:
    """A file's place in the corpus."""

    created_at: int
    attributes: dict[str, str | float | bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A whole file."""

    about: About
    added: Added | None
    """None where it is not part of the corpus."""


def read_entry(place: Path) -> Entry:
    """The file of this folder. Raises FileNotFoundError where there is none, BrokenError, OSError."""
    with opened_folder(place) as folder:
        return entry_in(folder)


def open_content(place: Path) -> tuple[About, BufferedReader]:
    """The same with its bytes, which nothing that happens to the file afterwards cuts."""
    with opened_folder(place) as folder:
        return entry_in(folder).about, open_plain(CONTENT, folder)


def read_json(kind: type[Kept], name: str | Path, folder: int | None = None) -> Kept:
    """Raises BrokenError, OSError."""
    with open_plain(name, folder) as file:
        try:
            return kind.model_validate_json(file.read())
        except ValidationError:
            raise BrokenError(f"`{Path(name).name}` is not what was written there") from None


def entry_in(folder: int) -> Entry:
    """The file of an open folder. Raises BrokenError, OSError."""
    about = read_json(About, ABOUT, folder)
    if (size := size_of(CONTENT, folder)) != about.bytes:
        raise BrokenError(f"`{CONTENT}` has {size} bytes, not {about.bytes}")
    return Entry(about, _added(folder))


def _added(folder: int) -> Added | None:
    """None without a mark, also where it goes while it is read."""
    present = set(os.listdir(folder))
    if ADDED not in present:
        return None
    try:
        mark = read_json(Mark, ADDED, folder)
    except BrokenError:
        if ADDED in os.listdir(folder):
            raise
        return None
    described = read_json(Described, ATTRIBUTES, folder) if ATTRIBUTES in present else Described()
    return Added(mark.created_at, described.attributes)
