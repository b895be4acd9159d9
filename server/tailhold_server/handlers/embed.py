"""Vectors of texts, as the pipeline itself makes them, without holding up its questions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailhold_api.serving import Embedder
from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.ports import Encoder
from tailhold_server.vectors import NotFiniteError

MOST_TEXTS = 2048
"""OpenAI's limit for one request."""
MOST_TOKENS = 300_000
"""OpenAI's limit for one request."""
_MOST_CHARACTERS_OF_A_TOKEN = 200
"""Longer text a token is no text in any language: it is refused before it takes seconds to count."""
_AT_ONCE = 16
"""Requests that are held: each has its vectors in memory."""
_COUNTED_AT_ONCE = 2
Other = TypeVar("Other")


class IdleThread(Protocol):
    """The thread that owns the encoder, when no question waits."""

    def when_idle(self, work: Callable[[], Other]) -> Awaitable[Other]:
        """The result of short work."""


class InputType(StrEnum):
    """What a text is, for models that were trained with prefixes."""

    QUERY = "query"
    PASSAGE = "passage"
    NONE = "none"


@dataclass(frozen=True)
class Embedded:
    """One row for each text, in order."""

    vectors: NDArray[np.float32]
    tokens: int
    """Of all texts, with prefix and special tokens."""


class Embedding:
    """Embeds texts in slices that each cost no more than one long question."""

    def __init__(self, encoder: Encoder, settings: Embedder, thread: IdleThread) -> None:
        self._encoder = encoder
        self._settings = settings
        self._thread = thread
        self._held = 0
        self._counting = asyncio.Semaphore(_COUNTED_AT_ONCE)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._encoder.dimension

    async def embed(self, texts: Sequence[str], input_type: InputType = InputType.QUERY) -> Embedded:
        """Raises ServeError that names the text by its place: nothing is cut, and nothing left out."""
        self._check_texts(texts)
        if self._held >= _AT_ONCE:
            told = f"{_AT_ONCE} requests for embeddings are held: no more now. Try again."
            raise ServeError(Failure.OVERLOADED, told, code="overloaded", retry_after_seconds=1)
        self._held += 1
        try:
            prefix = self._prefix(input_type)
            return await self._embed([prefix + text for text in texts])
        finally:
            self._held -= 1

    async def _embed(self, texts: list[str]) -> Embedded:
        async with self._counting:
            counts = await asyncio.to_thread(self._encoder.count_tokens, texts)
        self._check_counts(counts)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for rows in slices(counts, self._settings.max_tokens):
            work = partial(self._encoder.encode, texts[rows.start : rows.stop])
            try:
                vectors[rows.start : rows.stop] = await self._thread.when_idle(work)
            except NotFiniteError as error:
                place = _place(rows.start + error.rows[0])
                raise ServeError(
                    Failure.INTERNAL, f"`{place}`: the embedder gave no finite vector for it.", param=place
                ) from None
        return Embedded(vectors, sum(counts))

    def _prefix(self, input_type: InputType) -> str:
        prefixes = {InputType.QUERY: self._settings.query_prefix, InputType.PASSAGE: self._settings.passage_prefix}
        return prefixes.get(input_type, "")

    def _check_texts(self, texts: Sequence[str]) -> None:
        if not 1 <= len(texts) <= MOST_TEXTS:
            raise invalid(f"`input` has {len(texts)} texts: 1 to {MOST_TEXTS} are allowed", "input")
        for place, text in enumerate(texts):
            if not text.strip():
                raise invalid(f"`{_place(place)}` is empty: leave it out", _place(place))
            if len(text) > _MOST_CHARACTERS_OF_A_TOKEN * self._settings.max_tokens:
                raise self._too_long(place, f"{len(text)} characters")

    def _check_counts(self, counts: Sequence[int]) -> None:
        for place, count in enumerate(counts):
            if count > self._settings.max_tokens:
                raise self._too_long(place, f"{count} tokens with prefix and special tokens")
        if sum(counts) > MOST_TOKENS:
            raise invalid(f"`input` has {sum(counts)} tokens: at most {MOST_TOKENS} in one request", "input")

    def _too_long(self, place: int, length: str) -> ServeError:
        told = (
            f"`{_place(place)}` has {length}; the embedder takes {self._settings.max_tokens} tokens"
            " (`embedder.maxTokens`). Split it: nothing is cut."
        )
        return invalid(told, _place(place), "context_length_exceeded")


def slices(counts: Sequence[int], most_tokens: int) -> Iterator[range]:
    """Neighbouring texts, in order, that have at most so many tokens once each is padded to the longest of them."""
    start, longest = 0, 0
    for place, count in enumerate(counts):
        longest = max(longest, count)
        if place > start and longest * (place - start + 1) > most_tokens:
            yield range(start, place)
            start, longest = place, count
    if counts:
        yield range(start, len(counts))


def _place(place: int) -> str:
    return f"input[{place}]"
