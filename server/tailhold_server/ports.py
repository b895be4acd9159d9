"""What the pipeline asks of encoder, index, chunks and engine, and the values that pass between them."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tailhold_api.index_kinds import BY_DEFAULT, SearchParameters


class Encoder(Protocol):
    """Turns texts into vectors. One thread at a time."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def fingerprint(self) -> str:
        """Equal for encoders that give equal vectors: a snapshot made by another one is refused."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One finite row for each text; texts that are too long are cut."""

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text with the special ones, nothing cut. Any thread."""


class Searcher(Protocol):
    """Finds the nearest vectors. One thread at a time."""

    @property
    def count(self) -> int:
        """Vectors searched."""

    def search(
        self,
        vectors: NDArray[np.float32],
        k: int,
        parameters: SearchParameters = BY_DEFAULT,
        *,
        allowed: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores, higher is better, best first, and ids; an id of -1 is a place that nothing fills.

        With `allowed`, one truth for each vector, the search is among those alone: k of them are found where there are
        as many.
        """


@dataclass(frozen=True)
class ChunkSource:
    """Where a chunk comes from: all that a citation says."""

    document: str
    """Path of the document within its corpus source."""
    title: str
    url: str | None
    """Where readers find the document; None where the corpus source has no base URL."""
    source: str
    """Name of the corpus source."""
    start: int
    """First character of the chunk in the document's text."""
    end: int
    """One past the last."""
    key: str
    """SHA-256 of what the chunk is: the same in every snapshot that holds it."""


class Document(NamedTuple):
    """What a citation says of a document."""

    source: str
    """Name of the corpus source."""
    path: str
    """Within the source."""
    title: str
    url: str | None
    """Where readers find it."""
    digest: str = ""
    """SHA-256 of its file; empty where nobody wrote it down."""


class Chunks(Protocol):
    """The chunks of a snapshot, in the order of its vectors. Any thread.

    What stands in deleted documents alone is there by its number and has neither text nor source: IndexError.
    """

    @property
    def documents(self) -> Sequence[Document]:
        """All documents, in the order of reading."""

    @property
    def document_of(self) -> NDArray[np.int64]:
        """For each chunk the place of the document that is cited for it."""

    def document_beside(self, closed: frozenset[str]) -> NDArray[np.int64]:
        """The same for readers to whom these corpus sources are closed; -1 where a chunk stands in no other, or in
        deleted documents alone."""

    @property
    def gone(self) -> frozenset[int]:
        """Places of the documents that are deleted."""

    @property
    def live(self) -> NDArray[np.bool_] | None:
        """For each chunk whether it stands in any document that is not deleted; None where all do."""

    def without(self, gone: frozenset[int]) -> "Chunks":
        """The same with just these documents deleted."""

    def __len__(self) -> int: ...

    def text(self, index: int) -> str:
        """What was read from the document."""

    def token_ids(self, index: int) -> Sequence[int]:
        """The text by the generator's tokenizer, without special tokens."""

    def source(self, index: int) -> ChunkSource:
        """Where it comes from; of several places, the first that was read."""

    def sources(self, index: int) -> Sequence[ChunkSource]:
        """Every place at which this very text stands, in the order of reading; at least one."""


class Tokenizer(Protocol):
    """The generator's tokenizer. Any thread."""

    @property
    def longest_token(self) -> int:
        """Most characters of a text that one token can stand for: more of them cannot fit in so many tokens."""

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: special tokens in it are spelled out, so that no text forges a role."""

    def encode_template(self, text: str) -> list[int]:
        """Ids of a piece of the chat template, whose special tokens are meant."""

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """The chat template over (role, content), with the generation prompt. Raises ValueError."""


@dataclass(frozen=True)
class Sampling:
    """How the engine draws tokens."""

    max_tokens: int
    temperature: float
    """0 takes the likeliest token each time."""
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids and what is added to their scores."""
    logprobs: int | None = None
    """How many likelier tokens are told beside each; None tells no probability at all."""
    json_schema: str | None = None
    """What the answer has to be an instance of."""


@dataclass(frozen=True)
class Likely:
    """A token and how likely it was."""

    token: str
    """As text; a piece of a character has none that is exact."""
    logprob: float


@dataclass(frozen=True)
class TokenOdds(Likely):
    """The token that was drawn, and those that were the likeliest in its place."""

    top: tuple[Likely, ...] = ()


@dataclass(frozen=True)
class EngineTimes:
    """When the engine did what, in seconds on this machine's monotonic clock."""

    scheduled: float
    """The first step that worked on the request began."""
    first_token: float
    last_token: float
    """The newest so far."""


@dataclass(frozen=True)
class Delta:
    """What an answer gained since the last one."""

    text: str
    """Whole characters only; may be empty."""
    token_count: int
    finish_reason: str | None = None
    """`stop` or `length` on the last one, None before."""
    cached_tokens: int = 0
    """Prompt tokens whose KV blocks were there already."""
    times: EngineTimes | None = None
    """At least on the first and the last one; None of an engine that does not say."""
    odds: tuple[TokenOdds, ...] = ()
    """One for each token, where `logprobs` was asked for."""


class Engine(Protocol):
    """The language model. Called from the event loop alone."""

    async def start(self) -> None:
        """Returns when it can generate. Raises StartError."""

    def check(self, sampling: Sampling) -> None:
        """Raises ValueError where it cannot draw so. Before anything was sent."""

    def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, *, salt: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """Closing the generator aborts the request. Raises EngineDiedError.

        Prompts share what is kept of them only with prompts of the same `salt`.
        """

    async def abort(self, request_id: str) -> None:
        """Ends a request; one that is gone already is no error."""

    def is_alive(self) -> bool:
        """Whether its process runs."""

    async def heartbeat(self) -> None:
        """Returns when its loop has answered: at once where it is idle, else after the step that it is in."""

    def process_ids(self) -> list[int]:
        """Its processes on this machine, but for those that they started; none where it has no own."""

    def metrics_text(self) -> str:
        """Its own metrics in Prometheus' text format."""

    def description(self) -> dict[str, object]:
        """What it really runs with, for `/v1/tuning`."""

    async def stop(self) -> None:
        """Ends its process."""
