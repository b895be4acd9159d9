"""A snapshot's content as values, and as the bytes of its files."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from tailhold_api.index_kinds import HNSWStructure, IndexKind, IVFPQStructure
from tailhold_api.sources import Metric
from tailhold_server.ports import Document as Document
from tailhold_server.snapshots import manifest as names
from tailhold_server.snapshots.manifest import Manifest, StoredFile
from tailhold_server.snapshots.structure import Structure, structure_files


class Place(NamedTuple):
    """One of the spots at which a chunk's text stands."""

    document: int
    """Index into the documents."""
    start: int
    """First character in the document's text."""
    end: int
    """One past the last."""


DOCUMENTS: TypeAdapter[list[Document]] = TypeAdapter(list[Document])


@dataclass(frozen=True)
class Contents:
    """All that a snapshot is made of. Equal contents give equal digests."""

    kind: IndexKind
    metric: Metric
    embedder: str
    """Fingerprint of what made the vectors."""
    tokenizer: str
    """Fingerprint of what made the token ids."""
    vocabulary: int
    """Token ids are below this."""
    build: str
    """Digest of the build part."""
    recall: float
    vectors: NDArray[np.float32]
    texts: Sequence[str]
    token_ids: Sequence[Sequence[int]]
    passages: Sequence[bytes]
    """SHA-256 of what was embedded for each chunk, so that the next build can take over its vector."""
    places: Sequence[Sequence[Place]]
    """Where each chunk stands; the first place is the one that is cited."""
    documents: Sequence[Document]
    structure: Structure = None
    """What a search walks through."""
    ivfpq: IVFPQStructure | None = None
    hnsw: HNSWStructure | None = None
    recall_questions: int = 0


def files_of(contents: Contents) -> dict[str, bytes]:
    """The files by name."""
    texts = [text.encode() for text in contents.texts]
    places = [place for spots in contents.places for place in spots]
    return {
        names.VECTORS: np.ascontiguousarray(contents.vectors, dtype="<f4").tobytes(),
        names.TEXTS: b"".join(texts),
        names.TEXT_OFFSETS: _offsets(texts),
        names.TOKENS: np.array([i for ids in contents.token_ids for i in ids], dtype="<i4").tobytes(),
        names.TOKEN_OFFSETS: _offsets(contents.token_ids),
        names.PASSAGES: b"".join(contents.passages),
        names.PLACES: np.array(places, dtype="<i8").tobytes(),
        names.PLACE_OFFSETS: _offsets(contents.places),
        names.DOCUMENTS: _json(contents.documents),
    } | structure_files(contents.structure)


def manifest_of(contents: Contents, files: Mapping[str, StoredFile]) -> Manifest:
    """The manifest over files that are hashed already."""
    count, dimension = contents.vectors.shape
    return Manifest(
        format=1,
        kind=contents.kind,
        metric=contents.metric,
        count=count,
        dimension=dimension,
        vocabulary=contents.vocabulary,
        embedder=contents.embedder,
        tokenizer=contents.tokenizer,
        build=contents.build,
        recall=contents.recall,
        recall_questions=contents.recall_questions,
        ivfpq=contents.ivfpq,
        hnsw=contents.hnsw,
        files=dict(files),
    )


def _offsets(items: Iterable[Sequence[Any] | bytes]) -> bytes:
    lengths = [0, *(len(item) for item in items)]
    return np.cumsum(lengths, dtype="<i8").tobytes()


def _json(documents: Sequence[Document]) -> bytes:
    return json.dumps([list(document) for document in documents], ensure_ascii=False).encode()
