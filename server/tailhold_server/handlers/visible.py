"""Deletions that hold at once, whatever snapshot is in force."""

from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_server.content import Index
from tailhold_server.handlers.documents import open_chunks


@dataclass(frozen=True)
class _Known:
    index: Index
    mask: NDArray[np.bool_] | None


class Visible:
    """Which chunks may be found. Event loop only; the mask is made once for each index and set of deletions."""

    def __init__(self) -> None:
        self._deleted: Set[str] = frozenset()
        self._known: _Known | None = None

    def put(self, deleted: Set[str], index: Index, mask: NDArray[np.bool_] | None) -> None:
        """From now on nothing of these files is found; the mask is that of the index in force."""
        self._deleted = deleted
        self._known = _Known(index, mask)

    def mask(self, index: Index) -> NDArray[np.bool_] | None:
        """None where all may be found."""
        if not self._deleted:
            return None
        if self._known is None or self._known.index is not index:
            self._known = _Known(index, open_chunks(index, self._deleted))
        return self._known.mask
