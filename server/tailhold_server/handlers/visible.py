"""Which uploads may be found: those that are in the corpus now, whatever snapshot is in force."""

import asyncio
from collections.abc import Set
from dataclasses import dataclass
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from tailhold_server.content import Index
from tailhold_server.handlers.documents import open_chunks

Mask = NDArray[np.bool_]
_MOST_KNOWN = 64
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Known:
    index: ref[Index]
    """Not held: a mask must not keep a snapshot in memory."""
    corpus: Set[str] | None
    mask: Mask | None

    def holds(self, index: Index, corpus: Set[str] | None) -> bool:
        return self.index() is index and self.corpus == corpus


class Visible:
    """Which chunks may be found. Event loop only; a mask is made in a thread, once for each index, closed sources and
    corpus. So equal questions share one mask, and with it one search."""

    def __init__(self, corpus: Set[str] | None = None) -> None:
        """None where nobody follows the uploads: all that the index holds may be found."""
        self._corpus = corpus
        self._known: dict[tuple[str, frozenset[str]], _Known] = {}
        self._making = asyncio.Lock()

    def knows(self, corpus: Set[str], index: Index) -> bool:
        """Whether the mask of these is the one that is kept."""
        return self._corpus == corpus and self._ready(index, _NONE) is not None

    def put(self, corpus: Set[str], index: Index, mask: Mask | None) -> None:
        """From now on no upload beside these is found; the mask is that of the index in force."""
        self._corpus = corpus
        if self._ready(index, _NONE) is None:
            self._keep(index, _NONE, mask)

    async def mask(self, index: Index, closed: frozenset[str] = _NONE) -> Mask | None:
        """None where all may be found. Nothing of corpus sources that are `closed` to who asks is."""
        if self._corpus is None and not closed:
            return None
        known = self._ready(index, closed)
        if known is None:
            async with self._making:
                known = await self._made(index, closed)
        return known.mask

    async def _made(self, index: Index, closed: frozenset[str]) -> _Known:
        """Again where the corpus changed while it was made."""
        known = self._ready(index, closed)
        while known is None:
            corpus, of_all = self._corpus, self._ready(index, _NONE)
            mask = await asyncio.to_thread(_mask, index, closed, corpus, of_all)
            known = self._keep(index, closed, mask) if self._corpus == corpus else None
        return known

    def _ready(self, index: Index, closed: frozenset[str]) -> _Known | None:
        known = self._known.get((index.snapshot, closed))
        return known if known is not None and known.holds(index, self._corpus) else None

    def _keep(self, index: Index, closed: frozenset[str], mask: Mask | None) -> _Known:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        known = self._known[index.snapshot, closed] = _Known(ref(index), self._corpus, mask)
        return known


def _mask(index: Index, closed: frozenset[str], corpus: Set[str] | None, of_all: _Known | None) -> Mask | None:
    left = of_all.mask if of_all is not None else None if corpus is None else open_chunks(index, corpus)
    opened = index.allowed(closed)
    if left is None or opened is None:
        return opened if left is None else left
    return left & opened
