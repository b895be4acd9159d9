"""Embeds and searches batches of questions: the work of the retrieval thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import SearchParameters
from tailhold_server.content import Content
from tailhold_server.ports import Encoder
from tailhold_server.prompt import Passage
from tailhold_server.retrieval import choose


@dataclass(frozen=True)
class Lookup:
    """A question to be embedded and searched."""

    text: str
    content: Content
    top_k: int | None = None
    """None takes the pipeline's `retrieval.topK`."""
    min_score: float | None = None
    """None takes the pipeline's `retrieval.minScore`."""
    allowed: NDArray[np.bool_] | None = None
    """Which chunks may be found; None lets all."""

    @property
    def depth(self) -> int:
        """Most passages that are wanted."""
        return self.content.part.retrieval.top_k if self.top_k is None else self.top_k


@dataclass(frozen=True)
class Found:
    """Passages, best first, and when the batch passed which point, in seconds on the monotonic clock."""

    passages: tuple[Passage, ...]
    began: float
    embedded: float
    searched: float


class Retriever:
    """Called by one thread alone, which owns the encoder and the searchers."""

    def __init__(self, encoder: Encoder, query_prefix: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._encoder = encoder
        self._query_prefix = query_prefix
        self._clock = clock

    def work(self, lookups: Sequence[Lookup]) -> list[Found]:
        """One answer for each; the whole batch is embedded at once and searched once per index and parameters."""
        began = self._clock()
        vectors = self._encoder.encode([self._query_prefix + each.text for each in lookups])
        embedded = self._clock()
        found: dict[int, tuple[Passage, ...]] = {}
        for places in _searched_alike(lookups):
            found.update(_search(lookups, places, vectors))
        searched = self._clock()
        return [Found(found[place], began, embedded, searched) for place in range(len(lookups))]


def _searched_alike(lookups: Sequence[Lookup]) -> list[list[int]]:
    groups: dict[tuple[int, int, SearchParameters], list[int]] = {}
    for place, each in enumerate(lookups):
        alike = (id(each.content.index), id(each.allowed), each.content.part.search)
        groups.setdefault(alike, []).append(place)
    return list(groups.values())


def _search(
    lookups: Sequence[Lookup], places: Sequence[int], vectors: NDArray[np.float32]
) -> dict[int, tuple[Passage, ...]]:
    first = lookups[places[0]]
    index, parameters = first.content.index, first.content.part.search
    deepest = max(lookups[place].depth for place in places)
    k = min(deepest, index.searcher.count)
    if k == 0:
        return dict.fromkeys(places, ())
    allowed = _both(first.allowed, index.chunks.live)
    scores, ids = index.searcher.search(vectors[list(places)], k, parameters, allowed=allowed)
    return {place: _chosen(lookups[place], scores[row], ids[row]) for row, place in enumerate(places)}


def _both(one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _chosen(lookup: Lookup, scores: NDArray[np.float32], ids: NDArray[np.int64]) -> tuple[Passage, ...]:
    settings = lookup.content.part.retrieval
    passages = choose(
        scores.tolist(),
        ids.tolist(),
        count=len(lookup.content.index.chunks),
        min_score=settings.min_score if lookup.min_score is None else lookup.min_score,
        metric=lookup.content.index.metric,
    )
    return passages[: lookup.depth]
