"""What is recorded beside answers, one record each: searches, and what clients do with documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from tailhold_api.audit import Recording, Records
from tailhold_server.audit.facts import digests, kept, sha256, who
from tailhold_server.content import Content


class Event(Protocol):
    """What happened, or is about to."""

    kind: ClassVar[str]

    def is_wanted(self, recording: Recording) -> bool:
        """Whether the pipeline records such."""

    def told(self, pod_digest: str, recording: Recording) -> dict[str, Any]:
        """The record. Called in the writer's thread."""


@dataclass(frozen=True)
class SearchEvent:
    """Passages go to a client without an answer."""

    kind: ClassVar[str] = "search"

    request: str
    surface: str
    """`vector_stores`, or `grpc`."""
    caller: Any
    revision: str
    content: Content
    queries: Sequence[str]
    is_filtered: bool
    """Whether the client chose among the documents by their attributes."""
    chunks: Sequence[tuple[str, float]]
    """Key and score of each passage, best first."""

    def is_wanted(self, recording: Recording) -> bool:
        """Unless searches are left out."""
        return recording.searches

    def told(self, pod_digest: str, recording: Recording) -> dict[str, Any]:
        """Hashes of the queries; the queries where texts are kept."""
        known = {
            "request": self.request,
            "surface": self.surface,
            **who(self.caller),
            "revision": self.revision,
            "digests": digests(pod_digest, self.content),
            "queries": [{"sha256": sha256(each)} for each in self.queries],
            "filtered": self.is_filtered,
            "chunks": [{"key": key, "score": round(score, 6)} for key, score in self.chunks],
        }
        texts = recording.records is Records.TEXTS
        return known | ({"texts": [kept(each, recording) for each in self.queries]} if texts else {})


class Action(StrEnum):
    """What a client does with documents."""

    UPLOADED = "uploaded"
    ADDED = "added"
    """Part of the corpus, or its attributes changed."""
    TAKEN_OUT = "takenOut"
    DELETED = "deleted"
    READ = "read"


@dataclass(frozen=True)
class File:
    """A document, with what is known of it."""

    id: str
    sha256: str = ""
    """Of an uploaded file's bytes; empty for documents of the corpus' sources."""
    filename: str = ""
    chunk: str = ""
    """The key of the passage, where it is one alone."""


@dataclass(frozen=True)
class FileEvent:
    """A client changes or reads documents."""

    kind: ClassVar[str] = "file"

    action: Action
    surface: str
    """`files`, `vector_stores`, `sources`, or `grpc`."""
    caller: Any
    files: Sequence[File]

    def is_wanted(self, recording: Recording) -> bool:
        """Unless files are left out."""
        return recording.files

    def told(self, pod_digest: str, recording: Recording) -> dict[str, Any]:
        """Ids and digests; names where texts are kept."""
        files = [_file(each, recording) for each in self.files]
        return {"action": self.action.value, "surface": self.surface, **who(self.caller), "files": files}


def _file(file: File, recording: Recording) -> dict[str, str]:
    said = {"id": file.id, "sha256": file.sha256, "chunk": file.chunk}
    if recording.records is Records.TEXTS:
        said["filename"] = kept(file.filename, recording)
    return {name: value for name, value in said.items() if value}
