"""The content in force: index, prompt and limits, replaced as a whole by pointer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tailhold_api.codec import digest
from tailhold_api.parts import ContentPart
from tailhold_api.sources import Metric
from tailhold_server.audit.redact import compiled
from tailhold_server.errors import ContentRefusedError
from tailhold_server.ports import Chunks, Encoder, Searcher


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

    @cached_property
    def _by_key(self) -> tuple[np.ndarray, np.ndarray]:
        prefixes = (int(self.chunks.source(index).key[:16], 16) for index in range(len(self.chunks)))
        keys = np.fromiter(prefixes, dtype=np.uint64, count=len(self.chunks))
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def find(self, key: str) -> int | None:
        """The chunk of this key. The first call reads all keys: off the event loop."""
        keys, order = self._by_key
        place = int(np.searchsorted(keys, np.uint64(int(key[:16], 16))))
        while place < len(order) and keys[place] == int(key[:16], 16):
            if self.chunks.source(int(order[place])).key == key:
                return int(order[place])
            place += 1
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
