"""Deletions that hold at once, whatever snapshot is in force."""

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
    deleted: Set[str]
    mask: Mask | None

    def holds(self, index: Index, deleted: Set[str]) -> bool:
        return self.index() is index and self.deleted == deleted


class Visible:
    """Which chunks may be found. Event loop only; a mask is made in a thread, once for each index, closed sources and
    deletions. So equal questions share one mask, and with it one search."""

    def __init__(self) -> None:
        self._deleted: Set[str] = _NONE
        self._known: dict[tuple[str, frozenset[str]], _Known] = {}
        self._making = asyncio.Lock()

    def put(self, deleted: Set[str], index: Index, mask: Mask | None) -> None:
        """From now on nothing of these files is found; the mask is that of the index in force."""
        self._deleted = deleted
        if self._ready(index, _NONE) is None:
            self._keep(index, _NONE, mask)

    async def mask(self, index: Index, closed: frozenset[str] = _NONE) -> Mask | None:
        """None where all may be found. Nothing of corpus sources that are `closed` to who asks is."""
        if not (self._deleted or closed):
            return None
        known = self._ready(index, closed)
        if known is None:
            async with self._making:
                known = await self._made(index, closed)
        return known.mask

    async def _made(self, index: Index, closed: frozenset[str]) -> _Known:
        """Again where deletions came while it was made."""
        known = self._ready(index, closed)
        while known is None:
            deleted, of_all = self._deleted, self._ready(index, _NONE)
            mask = await asyncio.to_thread(_mask, index, closed, deleted, of_all)
            known = self._keep(index, closed, mask) if self._deleted == deleted else None
        return known

    def _ready(self, index: Index, closed: frozenset[str]) -> _Known | None:
        known = self._known.get((index.snapshot, closed))
        return known if known is not None and known.holds(index, self._deleted) else None

    def _keep(self, index: Index, closed: frozenset[str], mask: Mask | None) -> _Known:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        known = self._known[index.snapshot, closed] = _Known(ref(index), self._deleted, mask)
        return known


def _mask(index: Index, closed: frozenset[str], deleted: Set[str], of_all: _Known | None) -> Mask | None:
    left = open_chunks(index, deleted) if of_all is None else of_all.mask
    opened = index.allowed(closed)
    if left is None or opened is None:
        return opened if left is None else left
    return left & opened
