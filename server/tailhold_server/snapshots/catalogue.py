"""Which documents the snapshots of a volume hold, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailhold_server.ports import Document
from tailhold_server.snapshots.manifest import SnapshotRefused
from tailhold_server.snapshots.read import open_documents
from tailhold_server.snapshots.store import newest, snapshot_folder


@dataclass(frozen=True)
class Catalogue:
    """All snapshots of a volume, the one published last first."""

    documents: Mapping[str, tuple[Document, ...]]
    """By digest: what can be found in it."""
    unreadable: Mapping[str, str]
    """By digest: why nobody can say what is in it."""

    def holders(self, source: str, document: str) -> tuple[str, ...]:
        """Digests of those whose files hold the document's text."""
        wanted = (source, document)
        return tuple(name for name, found in self.documents.items() if wanted in {each[:2] for each in found})

    def names(self) -> frozenset[tuple[str, str]]:
        """Source and path of every document of all of them."""
        return frozenset(each[:2] for found in self.documents.values() for each in found)


def read_catalogue(store: Path) -> Catalogue:
    """Read the list of documents of each, and nothing else of it. Raises OSError where the volume cannot say."""
    documents, unreadable = dict[str, tuple[Document, ...]](), dict[str, str]()
    for name in newest(store):
        try:
            documents[name] = tuple(open_documents(snapshot_folder(store, name), name))
        except SnapshotRefused as error:
            unreadable[name] = error.message
    return Catalogue(documents, unreadable)
