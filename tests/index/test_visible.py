"""Masks of what may be found: made off the event loop, once for all who wait for one, never older than a deletion."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from rag_server import DOCUMENTS, SNAPSHOT

from tailhold_server.content import Index
from tailhold_server.handlers import Visible
from tailhold_server.handlers.documents import file_id, open_chunks
from tailhold_server.testing import stand_in_index

UPLOADED = {0: "file-0/hours.html"}
NOTHING: frozenset[str] = frozenset()
CLOSED = frozenset({"nothing of this name"})


class Watched:
    """Chunks that tell who looked for the open ones, and may do something meanwhile."""

    def __init__(self, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None
        beside = type(index.chunks).document_beside

        def document_beside(chunks: object, closed: frozenset[str]) -> NDArray[np.int64]:
            if closed:
                self.threads.append(threading.get_ident())
                self.meanwhile()
            return beside(chunks, closed)  # type: ignore[arg-type]  # the stand-in's own

        monkeypatch.setattr(type(index.chunks), "document_beside", document_beside)


@pytest.fixture
def index() -> Index:
    return stand_in_index(DOCUMENTS, SNAPSHOT, uploads=UPLOADED)


def test_questions_at_once_share_a_mask_that_another_thread_made(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(index, monkeypatch)

    async def ask() -> list[NDArray[np.bool_] | None]:
        visible = Visible()
        masks = await asyncio.gather(*(visible.mask(index, CLOSED) for _ in range(20)))
        return [*masks, await visible.mask(index, CLOSED)]

    masks = asyncio.run(ask())
    assert len(watched.threads) == 1
    assert watched.threads[0] != threading.get_ident()
    assert masks[0] is not None
    assert all(each is masks[0] for each in masks)


def test_what_is_deleted_while_a_mask_is_made_is_not_in_it(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, there = Watched(index, monkeypatch), frozenset({file_id(index.chunks.documents[0])})

    async def ask() -> NDArray[np.bool_] | None:
        visible, loop, done = Visible(there), asyncio.get_running_loop(), threading.Event()

        def delete() -> None:
            visible.put(NOTHING, index, open_chunks(index, NOTHING))
            done.set()

        def meanwhile() -> None:
            loop.call_soon_threadsafe(delete)
            assert done.wait(30)

        watched.meanwhile = meanwhile
        return await visible.mask(index, CLOSED)

    mask = asyncio.run(ask())
    assert mask is not None
    assert not mask[0]
    assert mask[1:].all()


def test_another_index_of_the_same_snapshot_gets_a_mask_of_its_own(index: Index) -> None:
    other = stand_in_index(DOCUMENTS[:1], SNAPSHOT, uploads=UPLOADED)

    async def ask() -> list[NDArray[np.bool_] | None]:
        visible = Visible()
        visible.put(NOTHING, index, open_chunks(index, NOTHING))
        return [await visible.mask(each) for each in (index, other, index)]

    lengths = [None if each is None else len(each) for each in asyncio.run(ask())]
    assert lengths == [len(DOCUMENTS), 1, len(DOCUMENTS)]


def test_a_mask_keeps_no_index_in_memory() -> None:
    async def ask() -> weakref.ref[Index]:
        index = stand_in_index(DOCUMENTS, SNAPSHOT)
        await visible.mask(index, CLOSED)
        return weakref.ref(index)

    visible = Visible()
    left = asyncio.run(ask())
    gc.collect()
    assert left() is None
