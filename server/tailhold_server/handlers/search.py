"""Passages for a query, without an answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_server.batcher import Batcher
from tailhold_server.content import Content, Contents
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers.documents import Attributes, attributes_of, file_id, filename
from tailhold_server.handlers.filters import Filter, passes
from tailhold_server.handlers.visible import Visible
from tailhold_server.ports import Document
from tailhold_server.prompt import Passage
from tailhold_server.retriever import Found, Lookup
from tailhold_server.sources import place_of

_AT_ONCE = 64
_NO_ATTRIBUTES: Mapping[str, Attributes] = {}


@dataclass(frozen=True)
class Hit:
    """A passage that was found."""

    file_id: str
    filename: str
    score: float
    text: str
    key: str
    attributes: Attributes


@dataclass(frozen=True)
class Results:
    """Passages, best first, and the content that they are of."""

    hits: list[Hit]
    content: Content


class Search:
    """Searches what answers are drawn from, in the same batches."""

    def __init__(
        self,
        retrieval: Batcher[Lookup, Found],
        contents: Contents,
        visible: Visible,
        own_attributes: Callable[[], Mapping[str, Attributes]] = lambda: _NO_ATTRIBUTES,
    ) -> None:
        self._retrieval = retrieval
        self._contents = contents
        self._visible = visible
        self._own_attributes = own_attributes
        self._held = 0

    async def search(
        self,
        queries: Sequence[str],
        most: int,
        *,
        min_score: float | None = None,
        wanted: Filter | None = None,
        tenant: str = "",
    ) -> Results:
        """The best passages over all queries that are open to the tenant, best first, each once. Raises ServeError."""
        if self._held + len(queries) > _AT_ONCE:
            told = f"{_AT_ONCE} searches are held: no more now. Try again."
            raise ServeError(Failure.OVERLOADED, told, code="overloaded", retry_after_seconds=1)
        self._held += len(queries)
        try:
            return await self._search(queries, most, min_score, wanted, tenant)
        finally:
            self._held -= len(queries)

    async def _search(
        self, queries: Sequence[str], most: int, min_score: float | None, wanted: Filter | None, tenant: str
    ) -> Results:
        content = self._contents.current
        own, closed = self._own_attributes(), content.part.closed_to(tenant)
        allowed = await self._visible.mask(content.index, closed)
        if wanted is not None:
            chosen = await asyncio.to_thread(_chosen, content, wanted, own, closed)
            allowed = chosen if allowed is None else chosen & allowed
        lookups = (Lookup(text, content, most, min_score, allowed) for text in queries)
        found = await asyncio.gather(*(self._retrieval.submit(each) for each in lookups))
        chosen_passages = best([each.passages for each in found], most)
        return Results([_hit(content, each, own, closed) for each in chosen_passages], content)


def best(found: Sequence[Sequence[Passage]], most: int) -> list[Passage]:
    """Each passage once with its best score, best first; equal ones by their place in the snapshot."""
    scores: dict[int, float] = {}
    for each in (passage for passages in found for passage in passages):
        scores[each.index] = max(each.score, scores.get(each.index, each.score))
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [Passage(index, score) for index, score in ranked[:most]]


def _chosen(
    content: Content, wanted: Filter, own: Mapping[str, Attributes], closed: frozenset[str]
) -> NDArray[np.bool_]:
    """By the document that is shown to who asks: what is closed to them must not answer by whether it fits."""
    chunks = content.index.chunks
    fits = [passes(wanted, attributes_of(each, own.get(file_id(each), {}))) for each in chunks.documents]
    shown = chunks.document_beside(closed) if closed else chunks.document_of
    chosen: NDArray[np.bool_] = np.array([*fits, False], dtype=np.bool_)[shown]
    return chosen


def _hit(content: Content, passage: Passage, own: Mapping[str, Attributes], closed: frozenset[str]) -> Hit:
    chunks = content.index.chunks
    place = place_of(chunks, passage.index, closed)
    document = Document(place.source, place.document, place.title, place.url)
    name = file_id(document)
    said = attributes_of(document, own.get(name, {}))
    return Hit(name, filename(document), passage.score, chunks.text(passage.index), place.key, said)
