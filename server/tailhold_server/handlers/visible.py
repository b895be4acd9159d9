"""Which uploads may be found: those that are in the corpus now, whatever snapshot is in force."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_server.content import Index
from tailhold_server.handlers.documents import open_chunks

Mask = NDArray[np.bool_]
_MOST_JOINED = 64


@dataclass(frozen=True)
class _Known:
    index: Index
    mask: NDArray[np.bool_] | None


class Visible:
    """Which chunks may be found. Event loop only; the mask is made once for each index and corpus."""

    def __init__(self, corpus: Set[str] | None = None) -> None:
        """None where nobody follows the uploads: all that the index holds may be found."""
        self._corpus = corpus
        self._known: _Known | None = None
        self._joined: dict[tuple[str, frozenset[str]], tuple[Mask, Mask]] = {}

    def holds(self, corpus: Set[str], index: Index) -> bool:
        """Whether the mask of these is known."""
        return self._corpus == corpus and self._known is not None and self._known.index is index

    def put(self, corpus: Set[str], index: Index, mask: NDArray[np.bool_] | None) -> None:
        """From now on no upload beside these is found; the mask is that of the index in force."""
        self._corpus = corpus
        self._known = _Known(index, mask)

    def mask(self, index: Index, closed: frozenset[str] = frozenset()) -> NDArray[np.bool_] | None:
        """None where all may be found. Nothing of corpus sources that are `closed` to who asks is."""
        left, opened = self._left(index), index.allowed(closed)
        if left is None or opened is None:
            return opened if left is None else left
        return self._both(left, opened, (index.snapshot, closed))

    def _both(self, left: Mask, opened: Mask, key: tuple[str, frozenset[str]]) -> Mask:
        """Equal questions share one mask, and with it one search."""
        known = self._joined.get(key)
        if known is None or known[0] is not left:
            if len(self._joined) >= _MOST_JOINED:
                self._joined.clear()
            known = self._joined[key] = (left, left & opened)
        return known[1]

    def _left(self, index: Index) -> Mask | None:
        if self._corpus is None:
            return None
        if self._known is None or self._known.index is not index:
            self._known = _Known(index, open_chunks(index, self._corpus))
        return self._known.mask
