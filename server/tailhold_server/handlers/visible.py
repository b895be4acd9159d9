"""Deletions that hold at once, whatever snapshot is in force."""

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
    """Which chunks may be found. Event loop only; the mask is made once for each index and set of deletions."""

    def __init__(self) -> None:
        self._deleted: Set[str] = frozenset()
        self._known: _Known | None = None
        self._joined: dict[tuple[str, frozenset[str]], tuple[Mask, Mask]] = {}

    def put(self, deleted: Set[str], index: Index, mask: NDArray[np.bool_] | None) -> None:
        """From now on nothing of these files is found; the mask is that of the index in force."""
        self._deleted = deleted
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
        if not self._deleted:
            return None
        if self._known is None or self._known.index is not index:
            self._known = _Known(index, open_chunks(index, self._deleted))
        return self._known.mask
