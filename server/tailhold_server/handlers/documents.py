"""Documents as OpenAI's files: stable ids, names and attributes."""

import hashlib
from collections.abc import Mapping, Set

import numpy as np
from numpy.typing import NDArray

from tailhold_api.sources import UPLOADS
from tailhold_server.content import Index
from tailhold_server.ports import Document

Scalar = str | float | bool
Attributes = Mapping[str, Scalar]


def file_id(document: Document) -> str:
    """The upload's own id, or one that a document of this source and path has in every snapshot."""
    if document.source == UPLOADS:
        return document.path.partition("/")[0]
    digest = hashlib.sha256(f"{document.source}\0{document.path}".encode()).hexdigest()
    return f"file-{digest[:32]}"


def filename(document: Document) -> str:
    """The last step of its path."""
    return document.path.rpartition("/")[2]


def attributes_of(document: Document, own: Attributes) -> dict[str, Scalar]:
    """What a filter can ask for; the file's own attributes never hide ours."""
    return {
        **own,
        "source": document.source,
        "document": document.path,
        "title": document.title[:512],
        "file_id": file_id(document),
        "filename": filename(document),
    }


def open_chunks(index: Index, corpus: Set[str]) -> NDArray[np.bool_] | None:
    """Which chunks may be found: not those of uploads beside these ids. None where all may.

    A text that stands in several documents goes with the one that is cited for it.
    """
    documents = enumerate(index.chunks.documents)
    gone = [place for place, each in documents if each.source == UPLOADS and file_id(each) not in corpus]
    return None if not gone else ~np.isin(index.chunks.document_of, gone)
