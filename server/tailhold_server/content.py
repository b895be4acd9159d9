"""The content in force: index, prompt and limits, replaced as a whole by pointer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tailhold_api.codec import digest
from tailhold_api.parts import ContentPart
from tailhold_api.sources import Metric
from tailhold_server.audit.redact import compiled
from tailhold_server.errors import ContentRefusedError
from tailhold_server.ports import Chunks, ChunkSource, Encoder, Searcher

_MOST_MASKS = 64
"""Sets of closed sources whose chunks are remembered, a byte for each chunk."""


@dataclass(frozen=True)
class Index:
    """A snapshot, open and ready to be searched."""

    snapshot: str
    """Its digest."""
    chunks: Chunks
    searcher: Searcher
    metric: Metric
    dimension: int
    fingerprint: str
    """Of the encoder that made its vectors."""
    build: str = ""
    """Digest of the build part that it was built from."""

    def allowed(self, closed: frozenset[str]) -> NDArray[np.bool_] | None:
        """For each chunk, whether it stands in a corpus source beside these; None where all do. Slow the first time."""
        return self._masks(closed) if closed else None

    @cached_property
    def _masks(self) -> Callable[[frozenset[str]], NDArray[np.bool_]]:
        return lru_cache(maxsize=_MOST_MASKS)(lambda closed: self.chunks.document_beside(closed) >= 0)

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        places = [(each.key, index) for index in range(len(self.chunks)) for each in self.chunks.sources(index)]
        keys = np.fromiter((int(key[:16], 16) for key, _ in places), dtype=np.uint64, count=len(places))
        chunks = np.fromiter((index for _, index in places), dtype=np.int64, count=len(places))
        order = np.argsort(keys, kind="stable")
        return keys[order], chunks[order]

    def find(self, key: str) -> tuple[int, ChunkSource] | None:
        """The chunk and the place of it that have this key. The first call reads all keys: off the event loop."""
        keys, chunks = self._by_key
        at = int(np.searchsorted(keys, np.uint64(int(key[:16], 16))))
        while at < len(chunks) and keys[at] == int(key[:16], 16):
            for place in self.chunks.sources(int(chunks[at])):
                if place.key == key:
                    return int(chunks[at]), place
            at += 1
        return None


Opener = Callable[[str], Index]
"""Opens and verifies the snapshot of this digest, or raises ContentRefusedError. Slow: off the event loop."""


@dataclass(frozen=True)
class Content:
    """A content part with its index. A request holds on to the one that it began with."""

    part: ContentPart
    index: Index
    digest: str = field(default="")


def check_encoder(index: Index, encoder: Encoder) -> None:
    """Raises ContentRefusedError where questions and passages would not be compared in one space."""
    if index.dimension != encoder.dimension:
        raise ContentRefusedError(
            f"snapshot {index.snapshot[:10]} has vectors of {index.dimension} numbers, the embedder gives "
            f"{encoder.dimension}: rebuild the index with this embedder"
        )
    if encoder.fingerprint and index.fingerprint != encoder.fingerprint:
        raise ContentRefusedError(
            f"snapshot {index.snapshot[:10]} was made by embedder {index.fingerprint[:16]}, this server has "
            f"{encoder.fingerprint[:16]}: rebuild the index with this embedder"
        )


class Contents:
    """The pointer to the content in force. Reads are on the event loop, loads in a thread."""

    def __init__(self, opener: Opener, encoder: Encoder) -> None:
        self._opener = opener
        self._encoder = encoder
        self._current: Content | None = None

    @property
    def current(self) -> Content:
        """What new requests begin with."""
        if self._current is None:
            raise ContentRefusedError("no content is loaded yet")
        return self._current

    @property
    def latest(self) -> Content | None:
        """The same, or None before there is any."""
        return self._current

    def load(self, part: ContentPart) -> Content:
        """Open what the part asks for; the index is kept where it is the same. Nothing changes yet."""
        compiled(part.recording.redaction)
        held = self._current
        if held is not None and held.index.snapshot == part.snapshot:
            return Content(part, held.index, digest(part))
        index = self._opener(part.snapshot)
        check_encoder(index, self._encoder)
        return Content(part, index, digest(part))

    def put(self, content: Content) -> None:
        """New requests begin with this one; running ones end on theirs, and the last of them frees it."""
        self._current = content
