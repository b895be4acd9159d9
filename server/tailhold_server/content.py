"""The content in force: index, prompt and limits, replaced as a whole by pointer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tailhold_api.codec import digest
from tailhold_api.index_kinds import IndexKind
from tailhold_api.parts import ContentPart
from tailhold_api.sources import Metric
from tailhold_server.audit.redact import compiled
from tailhold_server.errors import ContentRefusedError
from tailhold_server.headroom import NoRoomError
from tailhold_server.ports import Chunks, ChunkSource, Encoder, Searcher
from tailhold_server.snapshots.tombstones import Tombstones

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
    kind: IndexKind = IndexKind.FLAT
    """How it is searched."""
    recall: float = 1.0
    """At ten, as measured when it was built."""
    vectors: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """As they stand in the snapshot's file; None where it does not stay open."""

    def allowed(self, closed: frozenset[str]) -> NDArray[np.bool_] | None:
        """For each chunk, whether it stands in a corpus source beside these; None where all do. Slow the first time."""
        return self._masks(closed) if closed else None

    @cached_property
    def _masks(self) -> Callable[[frozenset[str]], NDArray[np.bool_]]:
        return lru_cache(maxsize=_MOST_MASKS)(lambda closed: self.chunks.document_beside(closed) >= 0)

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        live = np.arange(len(self.chunks)) if self.chunks.live is None else np.flatnonzero(self.chunks.live)
        places = [(each.key, index) for index in live.tolist() for each in self.chunks.sources(index)]
        keys = np.fromiter((int(key[:16], 16) for key, _ in places), dtype=np.uint64, count=len(places))
        chunks = np.fromiter((index for _, index in places), dtype=np.int64, count=len(places))
        order = np.argsort(keys, kind="stable")
        return keys[order], chunks[order]

    def find(self, key: str) -> tuple[int, ChunkSource] | None:
        """The chunk and the place of it that have this key; None for one that is deleted. The first call reads all
        keys: off the event loop."""
        keys, chunks = self._by_key
        at = int(np.searchsorted(keys, np.uint64(int(key[:16], 16))))
        while at < len(chunks) and keys[at] == int(key[:16], 16):
            for place in self.chunks.sources(int(chunks[at])):
                if place.key == key:
                    return int(chunks[at]), place
            at += 1
        return None

    def after(self, deletions: Tombstones) -> "Index":
        """The same index without what is deleted: the vectors are shared."""
        gone = frozenset(place for place, each in enumerate(self.chunks.documents) if deletions.hides(each))
        return self if gone == self.chunks.gone else replace(self, chunks=self.chunks.without(gone))


Opener = Callable[[str], Index]
"""Opens and verifies the snapshot of this digest, or raises ContentRefusedError. Slow: off the event loop."""
Deletions = Callable[[], Tombstones]
"""Reads what is deleted, whatever snapshot is in force. Slow: off the event loop. Raises OSError."""


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
    """The pointer to the content in force. Reads are on the event loop, loads in a thread.

    The index before the one in force stays in memory, so that going back to it needs no load; a third takes its place.
    """

    def __init__(self, opener: Opener, encoder: Encoder, deletions: Deletions = Tombstones) -> None:
        self._opener = opener
        self._encoder = encoder
        self._deletions = deletions
        self._current: Content | None = None
        self._previous: Index | None = None

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

    @property
    def indexes(self) -> tuple[Index, ...]:
        """Those in memory, the one in force first."""
        current = self._current.index if self._current else None
        return tuple(each for each in (current, self._previous) if each is not None)

    @property
    def held(self) -> tuple[str, ...]:
        """Digests of the snapshots in memory, the one in force first."""
        return tuple(each.snapshot for each in self.indexes)

    def load(self, part: ContentPart) -> Content:
        """Open what the part asks for; an index that is held is not read again. Nothing changes yet.

        Raises ContentRefusedError.
        """
        compiled(part.recording.redaction)
        deletions = self._read_deletions()
        return Content(part, self._index(part.snapshot).after(deletions), digest(part))

    def put(self, content: Content) -> None:
        """New requests begin with this one; running ones end on theirs."""
        before = self._current
        if before is not None and before.index.snapshot != content.index.snapshot:
            self._previous = before.index
        self._current = content

    def deleted_since(self) -> Content | None:
        """The content in force without what was deleted since it was put; None where that is nothing.

        Slow: off the event loop. Raises ContentRefusedError where the volume cannot say.
        """
        held = self._current
        if held is None:
            return None
        index = held.index.after(self._read_deletions())
        return None if index is held.index else replace(held, index=index)

    def _index(self, snapshot: str) -> Index:
        for held in (self._current.index if self._current else None, self._previous):
            if held is not None and held.snapshot == snapshot:
                return held
        index = self._opened(snapshot)
        check_encoder(index, self._encoder)
        return index

    def _opened(self, snapshot: str) -> Index:
        try:
            return self._opener(snapshot)
        except NoRoomError:
            if self._previous is None:
                raise
        # Three do not fit: the way back is given up for the way forward.
        self._previous = None
        return self._opener(snapshot)

    def _read_deletions(self) -> Tombstones:
        try:
            return self._deletions()
        except OSError as error:
            raise ContentRefusedError(
                f"what was deleted cannot be read: {error.strerror}: check the claim of `index.store`"
            ) from error
