"""Stand-ins for models, for tests of all that is not a model. They ship, and say what they are."""

import asyncio
import hashlib
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailhold_api.conditions import Reason
from tailhold_api.index_kinds import BY_DEFAULT, SearchParameters
from tailhold_api.sources import UPLOADS, Metric
from tailhold_server.content import Index
from tailhold_server.errors import EngineDiedError, StartError
from tailhold_server.ports import (
    ChunkSource,
    Delta,
    Document,
    EngineTimes,
    Likely,
    Sampling,
    TokenOdds,
)

_REMEMBERED = 64
WIDEST = 3
"""Most bytes of a token."""
_FIRST_IDS = {1: 1_000_000, 2: 3_000_000, 3: 4_000_000}
"""Of the tokens of so many bytes."""
_ROLE_IDS = 2_000_000
VOCABULARY = _FIRST_IDS[WIDEST] + 256**WIDEST
"""All ids are below."""
_TOKENS = 256
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_ROLE = re.compile("|".join(re.escape(role) for role in _ROLES))


class StandInTokenizer:
    """A token is a byte, or up to `width` of them; roles are tokens of their own. Ids of other tokenizers decode to
    nothing."""

    def __init__(self, width: int = 1) -> None:
        if not 1 <= width <= WIDEST:
            raise ValueError(f"{width} bytes: a token has 1 to {WIDEST}")
        self.longest_token = width

    def encode(self, text: str) -> list[int]:
        """One id for each piece of UTF-8."""
        data, width = text.encode(), self.longest_token
        return [_id_of(data[at : at + width]) for at in range(0, len(data), width)]

    def encode_template(self, text: str) -> list[int]:
        """The same, with roles read as such."""
        ids: list[int] = []
        at = 0
        for match in _ROLE.finditer(text):
            ids += [*self.encode(text[at : match.start()]), _ROLE_IDS + _ROLES.index(match[0])]
            at = match.end()
        return ids + self.encode(text[at:])

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Each message between its role and an end."""
        return "".join(f"<|{role}|>{content}<|end|>" for role, content in messages) + "<|assistant|>"

    def decode(self, ids: Sequence[int]) -> str:
        """The text again; roles as they are written."""
        return b"".join(map(_bytes_of, ids)).decode(errors="replace")


def _id_of(piece: bytes) -> int:
    return _FIRST_IDS[len(piece)] + int.from_bytes(piece, "big")


def _bytes_of(token: int) -> bytes:
    if _ROLE_IDS <= token < _ROLE_IDS + len(_ROLES):
        return _ROLES[token - _ROLE_IDS].encode()
    for width, first in _FIRST_IDS.items():
        if first <= token < first + 256**width:
            return (token - first).to_bytes(width, "big")
    return b""


class StandInEncoder:
    """A text's vector is the sum of its words' hashes: texts that share words are near each other."""

    def __init__(self, dimension: int = 64, fingerprint: str = "stand-in") -> None:
        self.dimension = dimension
        self.fingerprint = fingerprint

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Normalised rows."""
        rows = np.stack([self._vector(text) for text in texts])
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)
        return rows.astype(np.float32)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Its words, and two."""
        return [2 + len(text.split()) for text in texts]

    def _vector(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(self.dimension, np.float32)
        for word in re.findall(r"\w+", text.lower()) or ["-"]:
            bits = hashlib.shake_128(word.encode()).digest(self.dimension)
            vector += np.frombuffer(bits, np.uint8).astype(np.float32) - 127.5
        return vector


class StandInSearcher:
    """Compares with every vector."""

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors

    @property
    def count(self) -> int:
        """Vectors."""
        return len(self._vectors)

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Padded with -1 beyond what there is, as FAISS does."""
        scores = np.full((len(vectors), k), -3.4e38, np.float32)
        ids = np.full((len(vectors), k), -1, np.int64)
        products = vectors @ self._vectors.T
        may = len(self._vectors) if allowed is None else int(allowed.sum())
        if allowed is not None:
            products = np.where(allowed, products, -np.inf)
        best = np.argsort(-products, axis=1, kind="stable")[:, : min(k, may)]
        ids[:, : best.shape[1]] = best
        scores[:, : best.shape[1]] = np.take_along_axis(products, best, axis=1)
        return scores, ids


class Pace(NamedTuple):
    """When an answer's tokens come, in seconds from when it runs."""

    first: float
    gap: float

    def at(self, place: int) -> float:
        """Of the so-manieth token, from 1."""
        return self.first + (place - 1) * self.gap


@dataclass(frozen=True)
class StandInDocument:
    """A document of one chunk."""

    title: str
    text: str
    url: str | None = None
    sources: tuple[str, ...] = ("stand-in",)
    """The corpus sources that it stands in."""


class StandInChunks:
    """Documents in memory, each one chunk."""

    def __init__(
        self,
        documents: Sequence[StandInDocument],
        uploads: Mapping[int, str] | None = None,
        gone: frozenset[int] = frozenset(),
    ) -> None:
        self._documents = documents
        self._uploads = uploads or {}
        self._gone = gone
        self._tokenizer = StandInTokenizer()

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def documents(self) -> Sequence[Document]:
        """Named by the titles; one for each source that a text stands in."""
        found = (each for index in range(len(self)) for each in self._all_sources(index))
        return [Document(each.source, each.document, each.title, each.url) for each in found]

    @property
    def document_of(self) -> NDArray[np.int64]:
        """Each chunk's first."""
        return self.document_beside(frozenset())

    @property
    def gone(self) -> frozenset[int]:
        """Places of the documents that are deleted."""
        return self._gone

    @property
    def live(self) -> NDArray[np.bool_] | None:
        """None where nothing is deleted."""
        return np.array([self._is_live(index) for index in range(len(self))], dtype=np.bool_) if self._gone else None

    def _is_live(self, index: int) -> bool:
        return not self._gone.issuperset(self._places(index))

    def without(self, gone: frozenset[int]) -> "StandInChunks":
        """The same with just these documents deleted."""
        return StandInChunks(self._documents, self._uploads, gone)

    def text(self, index: int) -> str:
        """The document's text."""
        if not self._is_live(index):
            raise IndexError(f"chunk {index} is deleted")
        return self._documents[index].text

    def token_ids(self, index: int) -> Sequence[int]:
        """Of the stand-in tokenizer."""
        return self._tokenizer.encode(self.text(index))

    def source(self, index: int) -> ChunkSource:
        """Named by the title."""
        return self.sources(index)[0]

    def sources(self, index: int) -> Sequence[ChunkSource]:
        """One in each corpus source, but for deleted documents."""
        self.text(index)
        numbered = zip(self._places(index), self._all_sources(index), strict=True)
        return [each for place, each in numbered if place not in self._gone]

    def _places(self, index: int) -> range:
        """Its documents' places in the list of all."""
        first = sum(len(self._all_sources(before)) for before in range(index))
        return range(first, first + len(self._all_sources(index)))

    def _all_sources(self, index: int) -> Sequence[ChunkSource]:
        document = self._documents[index]
        sources = (UPLOADS,) if index in self._uploads else document.sources
        return [_stand_in_source(document, source, self._uploads.get(index)) for source in sources]

    def document_beside(self, closed: frozenset[str]) -> NDArray[np.int64]:
        """Each chunk's first beside these sources."""
        return np.array([self._open_place(index, closed) for index in range(len(self))], dtype=np.int64)

    def _open_place(self, index: int, closed: frozenset[str]) -> int:
        numbered = zip(self._places(index), self._all_sources(index), strict=True)
        opened = (place for place, each in numbered if each.source not in closed and place not in self._gone)
        return next(opened, -1)


def _stand_in_source(document: StandInDocument, source: str, path: str | None) -> ChunkSource:
    told = "\0".join((document.title, document.text, *((source,) if source in document.sources[1:] else ())))
    key = hashlib.sha256(told.encode()).hexdigest()
    name = path or f"{document.title.lower()}.html"
    return ChunkSource(name, document.title, document.url, source, 0, len(document.text), key)


def stand_in_index(
    documents: Sequence[StandInDocument],
    snapshot: str = "0" * 64,
    dimension: int = 64,
    uploads: Mapping[int, str] | None = None,
) -> Index:
    """An index over documents in memory; those at the places of `uploads` are uploads with these paths."""
    encoder = StandInEncoder(dimension)
    chunks = StandInChunks(documents, uploads)
    vectors = encoder.encode([each.text for each in documents]) if documents else np.zeros((0, dimension), np.float32)
    return Index(snapshot, chunks, StandInSearcher(vectors), Metric.COSINE, dimension, encoder.fingerprint)


class StandInEngine:
    """Repeats the question, citing each numbered source, a word at a time.

    Equal prompts give equal answers. Faults: `kill` ends it, `freeze` stops its tokens.
    """

    def __init__(
        self,
        *,
        seconds_per_token: float = 0.0,
        running_limit: int = 16,
        answer: str | None = None,
        start_seconds: float = 0.0,
        start_error: str = "",
        tokenizer: StandInTokenizer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds_per_token = seconds_per_token
        self.answer = answer
        """What it says; None says the question."""
        self.aborted: deque[str] = deque(maxlen=_REMEMBERED)
        """The last requests that were ended from outside."""
        self.prompts: deque[list[int]] = deque(maxlen=_REMEMBERED)
        """What it was given lately."""
        self.samplings: deque[Sampling] = deque(maxlen=_REMEMBERED)
        """How it was to draw the tokens of each."""
        self.salts: deque[str] = deque(maxlen=_REMEMBERED)
        """With whom each may share what is kept of its prompt."""
        self._start_seconds = start_seconds
        self._start_error = start_error
        self._tokenizer = tokenizer or StandInTokenizer()
        self._clock = clock
        self._slots = asyncio.Semaphore(running_limit)
        self._moving = asyncio.Event()
        self._moving.set()
        self._died = asyncio.Event()
        self._alive = False

    async def start(self) -> None:
        """After `start_seconds`, or not at all."""
        await asyncio.sleep(self._start_seconds)
        if self._start_error:
            raise StartError(Reason.START_FAILED, self._start_error, final=False)
        self._alive = True

    def check(self, sampling: Sampling) -> None:
        """Its vocabulary has 256 tokens, and every schema is fine."""
        if any(token >= _TOKENS for token, _ in sampling.logit_bias):
            raise ValueError(f"a token id is not below {_TOKENS}")

    def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, *, salt: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """A word is a token."""
        self.salts.append(salt)
        return self._generated(request_id, prompt_ids, sampling)

    async def _generated(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling
    ) -> AsyncGenerator[Delta, None]:
        self.prompts.append(list(prompt_ids))
        self.samplings.append(sampling)
        finished = False
        try:
            pace = self._pace()
            async with self._slots:
                scheduled = first = self._clock()
                words = self._words(prompt_ids, sampling)
                for place, word in enumerate(words[: sampling.max_tokens], 1):
                    await self._until(scheduled + pace.at(place))
                    now = self._clock()
                    first = now if place == 1 else first
                    reason = _reason(place, len(words), sampling.max_tokens)
                    finished = reason is not None
                    times = EngineTimes(scheduled, first, now)
                    yield Delta(word, 1, reason, times=times, odds=_odds(word, sampling))
        finally:
            if not finished:
                self.aborted.append(request_id)

    async def abort(self, request_id: str) -> None:
        """Its generator is what ends it."""

    def is_alive(self) -> bool:
        """Between `start` and `kill` or `stop`."""
        return self._alive

    async def heartbeat(self) -> None:
        """Not while it is frozen."""
        await self._moving.wait()

    def process_ids(self) -> list[int]:
        """None: it lives in the server's."""
        return []

    def metrics_text(self) -> str:
        """None."""
        return ""

    def description(self) -> dict[str, object]:
        """Says what it is."""
        return {"name": "stand-in", "secondsPerToken": self.seconds_per_token}

    async def stop(self) -> None:
        """At once."""
        self.kill()

    def kill(self) -> None:
        """As if its process had died."""
        self._alive = False
        self._died.set()
        self._moving.set()

    def freeze(self) -> None:
        """No more tokens."""
        self._moving.clear()

    def thaw(self) -> None:
        """Tokens again."""
        self._moving.set()

    def _pace(self) -> Pace:
        """Of the next answer. Raises what it ends with instead."""
        return Pace(self.seconds_per_token, self.seconds_per_token)

    async def _until(self, due: float) -> None:
        if (left := due - self._clock()) > 0:
            await asyncio.sleep(left)
        await self._moving.wait()
        if self._died.is_set():
            raise EngineDiedError("the stand-in was killed")

    def _words(self, prompt_ids: Sequence[int], sampling: Sampling) -> list[str]:
        said = self.answer if self.answer is not None else self._echo(prompt_ids)
        for stop in sampling.stop:
            said = said.partition(stop)[0]
        return re.findall(r"\S+\s*|\s+", said) or [""]

    def _echo(self, prompt_ids: Sequence[int]) -> str:
        text = self._tokenizer.decode(prompt_ids)
        before, _, question = text.rpartition("Question: ")
        context = before.rpartition("<|user|>")[2]
        markers = re.findall(r"^\[\d+\](?= )", context, re.MULTILINE)
        return f"You asked: {question.removesuffix('<|end|><|assistant|>')} {''.join(markers)}".rstrip()


def _odds(word: str, sampling: Sampling) -> tuple[TokenOdds, ...]:
    if sampling.logprobs is None:
        return ()
    return (TokenOdds(word, -0.5, tuple(Likely(word, -0.5 - rank) for rank in range(sampling.logprobs))),)


def _reason(place: int, words: int, limit: int) -> str | None:
    if place == words:
        return "stop"
    return "length" if place == limit else None
