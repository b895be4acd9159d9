"""Documents of the vector store as values, and how far each is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from tailhold_api.codec import load
from tailhold_api.sources import UPLOADS
from tailhold_server.content import Index
from tailhold_server.handlers.documents import Attributes, Scalar, attributes_of, file_id, filename
from tailhold_server.ingest.report import BuildReport, DocumentFailure, Why
from tailhold_server.ports import Document
from tailhold_server.uploads.entry import About, Added


class FileState(StrEnum):
    """How far a document is."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class StoredFile:
    """A document of the vector store."""

    file_id: str
    filename: str
    state: FileState
    created_at: int
    """0 for documents of the spec's own sources: nobody knows."""
    bytes: int
    attributes: Attributes
    failure: DocumentFailure | None = None


@dataclass(frozen=True)
class Seen:
    """One look at the uploads, beside the snapshot in force."""

    index: Index
    corpus: Mapping[str, tuple[About, Added]] = field(default_factory=dict)
    failures: Mapping[str, DocumentFailure] = field(default_factory=dict)


def stored_files(seen: Seen) -> list[StoredFile]:
    """All documents, uploaded or not."""
    chunks = seen.index.chunks
    indexed = {file_id(each): each for place, each in enumerate(chunks.documents) if place not in chunks.gone}
    own = [_own(name, each) for name, each in indexed.items() if each.source != UPLOADS]
    return own + [_upload(seen, name, name in indexed) for name in seen.corpus]


def stored_file(seen: Seen, name: str) -> StoredFile | None:
    """One of them; None where there is none. Slow where it is no upload."""
    chunks = seen.index.chunks
    places = (place for place, each in enumerate(chunks.documents) if file_id(each) == name)
    found = next((chunks.documents[place] for place in places if place not in chunks.gone), None)
    if name in seen.corpus:
        return _upload(seen, name, found is not None)
    if found is None or found.source == UPLOADS:
        return None
    return _own(name, found)


def has_document(indexes: Iterable[Index], name: str) -> bool:
    """Whether a document of the corpus' sources has this id, be it that it is deleted."""
    of_sources = (each for index in indexes for each in index.chunks.documents if each.source != UPLOADS)
    return any(file_id(each) == name for each in of_sources)


def _own(name: str, document: Document) -> StoredFile:
    return StoredFile(name, filename(document), FileState.COMPLETED, 0, 0, attributes_of(document, {}))


def _upload(seen: Seen, name: str, indexed: bool) -> StoredFile:
    (about, added), failed = seen.corpus[name], seen.failures.get(name)
    state = FileState.COMPLETED if indexed else FileState.FAILED if failed else FileState.IN_PROGRESS
    shown: dict[str, Scalar] = {**added.attributes, "source": UPLOADS}
    return StoredFile(name, about.filename, state, added.created_at, about.bytes, shown, None if indexed else failed)


def texts_of(index: Index, name: str) -> list[str]:
    """The passages of a document, in their order."""
    chunks, of = index.chunks, index.chunks.document_of
    places = {place for place, each in enumerate(chunks.documents) if file_id(each) == name} - chunks.gone
    return [chunks.text(at) for at in range(len(of)) if int(of[at]) in places]


def reported(path: Path) -> Mapping[str, DocumentFailure]:
    """What a build's report says of uploads, by their ids; nothing where it cannot be read."""
    try:
        report = load(BuildReport, path.read_bytes())
    except (OSError, ValidationError):
        return {}
    own = (each for each in report.failures if each.path.startswith(f"{UPLOADS}/"))
    return {each.path.split("/")[1]: each for each in own if each.reason is not Why.EMPTY_SOURCE}
