"""The path of a question: admit, look up, write the prompt, generate, cite."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeVar

from tailhold_api.serving import ContextOrder, Overflow, Prompt, Retrieval
from tailhold_server.admission import Gate
from tailhold_server.batcher import Batcher
from tailhold_server.citations import Citation, Scanner
from tailhold_server.content import Content, Contents
from tailhold_server.errors import EngineDiedError, Failure, ServeError, invalid
from tailhold_server.handlers.visible import Visible
from tailhold_server.ports import Delta, Engine, Sampling, Tokenizer, TokenOdds
from tailhold_server.prompt import Passage, Window, Written, arrange, compose, far_too_long, fit, shortened
from tailhold_server.question import Dialogue, Question, dialogue, newest
from tailhold_server.retriever import Found, Lookup
from tailhold_server.sources import Source, heading, place_of, source_of
from tailhold_server.stages import Marks, milliseconds
from tailhold_server.template import Skeleton, Turn

Clock = Callable[[], float]
Other = TypeVar("Other")

_LONG_CHARACTERS = 16_000
"""Longer text is tokenised off the event loop, which streams meanwhile."""
_LONG_AT_ONCE = 2
"""So many at a time: each takes a hundred times the memory of its text."""


@dataclass(frozen=True)
class Prepared:
    """A question with its prompt and sources, admitted and ready for the engine."""

    request_id: str
    content: Content
    prompt_ids: list[int]
    sampling: Sampling
    sources: tuple[Source, ...]
    dropped: int
    """Passages and turns that did not fit."""
    truncated: bool
    """Whether the question's end did not fit either."""
    context_tokens: int
    marks: Marks
    """When it passed which point; goes on while the answer is written."""
    salt: str = ""
    """With whom the engine may share what it keeps of the prompt."""

    @property
    def most_tokens(self) -> int:
        """Of prompt and the longest answer."""
        return len(self.prompt_ids) + self.sampling.max_tokens


@dataclass
class Step:
    """What an answer gained: text, citations that it completes, and at the end why it ended."""

    text: str
    citations: list[Citation]
    finish_reason: str | None = None
    odds: tuple[TokenOdds, ...] = ()
    """One for each token of the text, where they were asked for."""


@dataclass
class Answer:
    """What is known of an answer while it is written."""

    prepared: Prepared
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str | None = None
    citations: list[Citation] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, what none explains, and their total: once the last text is there."""


@dataclass(frozen=True)
class _Messages:
    system: list[int]
    turns: tuple[Turn, ...]
    last: list[int]
    dropped: int


class Pipeline:
    """Answers questions. One for each server, on its event loop."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        skeleton: Skeleton,
        retrieval: Batcher[Lookup, Found],
        contents: Contents,
        engine: Engine,
        gate: Gate,
        max_model_tokens: int,
        visible: Visible,
        public_url: str = "",
        clock: Clock = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._skeleton = skeleton
        self._retrieval = retrieval
        self._contents = contents
        self._engine = engine
        self._gate = gate
        self._limit = max_model_tokens
        self._visible = visible
        self._public_url = public_url
        self._clock = clock
        self._long = asyncio.Semaphore(_LONG_AT_ONCE)
        self._encode_often = lru_cache(maxsize=8192)(tokenizer.encode)

    @property
    def contents(self) -> Contents:
        """The content in force."""
        return self._contents

    @property
    def held(self) -> int:
        """Questions that are being answered or wait."""
        return self._gate.held

    async def when_idle(self, work: Callable[[], Other]) -> Other:
        """The result of short work, done by the thread that owns the searchers when no question waits."""
        return await self._retrieval.when_idle(work)

    async def answer(
        self, question: Question, request_id: str, tenant: str = "", marks: Marks | None = None
    ) -> "Answering":
        """Admit the question and write its prompt. The caller runs the result, or closes it.

        `marks` are those of a request that arrived before; this moment's where none are given. Sources that are closed
        to the tenant are not looked up. Raises ServeError, and holds no place then.
        """
        content = self._contents.current
        self._gate.enter(content.part.admission)
        try:
            prepared = await self._prepare(question, request_id, content, tenant, marks or Marks(self._clock()))
        except BaseException:
            self._gate.leave()
            raise
        return Answering(prepared, self._engine, self._gate, self._clock)

    async def _prepare(
        self, question: Question, request_id: str, content: Content, tenant: str, marks: Marks
    ) -> Prepared:
        spoken = self._limited(dialogue(content.part.prompt.system, question.messages), content.part.prompt)
        messages = await self._tokenized(spoken)
        marks.tokenized = self._clock()
        closed = content.part.closed_to(tenant)
        allowed = await self._visible.mask(content.index, closed)
        found = await self._retrieval.submit(Lookup(question.text, content, allowed=allowed))
        marks.found = self._clock()
        marks.batched, marks.embedded, marks.searched = found.began, found.embedded, found.searched
        prepared = replace(self._write(question, request_id, content, messages, found, marks, closed), salt=tenant)
        await self._checked(prepared.sampling)
        marks.written = self._clock()
        return prepared

    async def _checked(self, sampling: Sampling) -> None:
        """A schema is made a grammar to see whether it can be, which may take long. Raises ServeError."""
        if not (sampling.logit_bias or sampling.json_schema):
            return
        try:
            await asyncio.to_thread(self._engine.check, sampling)
        except ValueError as error:
            param = "response_format" if sampling.json_schema else "logit_bias"
            raise invalid(f"`{param}`: the engine cannot answer so: {str(error)[:500]}", param) from None

    def _limited(self, spoken: Dialogue, prompt: Prompt) -> Dialogue:
        """Megabytes that cannot fit are not tokenised: it would take seconds, and memory by the gigabyte.

        Raises ServeError.
        """
        most = self._limit * self._tokenizer.longest_token
        if prompt.on_overflow is Overflow.TRUNCATE:
            spoken = replace(spoken, last=spoken.last[:most])
            most += len(spoken.system)
        fixed = len(spoken.system) + len(spoken.last)
        if fixed > most:
            raise far_too_long(fixed, most, self._limit)
        return newest(spoken, most)

    async def _tokenized(self, spoken: Dialogue) -> _Messages:
        if spoken.characters <= _LONG_CHARACTERS:
            return self._tokenize(spoken)
        async with self._long:
            return await asyncio.to_thread(self._tokenize, spoken)

    def _tokenize(self, spoken: Dialogue) -> _Messages:
        encode = self._tokenizer.encode
        turns = tuple(Turn(tuple(encode(user)), tuple(encode(assistant))) for user, assistant in spoken.turns)
        return _Messages(self._encode_often(spoken.system), turns, encode(f"Question: {spoken.last}"), spoken.dropped)

    def _write(
        self,
        question: Question,
        request_id: str,
        content: Content,
        messages: _Messages,
        found: Found,
        marks: Marks,
        closed: frozenset[str],
    ) -> Prepared:
        settings = content.part.retrieval
        written = partial(self._written, content, closed)
        ranked = [written(rank, passage) for rank, passage in _measured(found.passages, settings)]
        asked = question.max_tokens or content.part.prompt.max_answer_tokens
        turns = [self._skeleton.turn_tokens(turn) for turn in messages.turns]
        prompt = content.part.prompt
        window = Window(self._limit, settings.context_tokens, prompt.max_prompt_tokens, prompt.on_overflow)
        others = self._skeleton.fixed_tokens + len(messages.system)
        last = shortened(messages.last, others, window)
        fitted = fit(
            window,
            fixed=others + len(last),
            asked=asked,
            passages=[len(each.ids) for each in ranked],
            turns=turns,
        )
        kept = arrange(ranked[: fitted.passages], settings.context_order)
        numbered = [written(number, each.passage).ids for number, each in enumerate(kept, 1)]
        prompt_ids = compose(
            self._skeleton,
            system=messages.system,
            turns=messages.turns[len(turns) - fitted.turns :],
            passages=numbered,
            question=last,
        )
        return Prepared(
            request_id,
            content,
            prompt_ids,
            _sampling(question, content.part.prompt, min(asked, self._limit - len(prompt_ids))),
            tuple(
                source_of(content.index.chunks, each.passage, number, self._public_url, closed)
                for number, each in enumerate(kept, 1)
            ),
            truncated=len(last) < len(messages.last),
            dropped=len(ranked) - fitted.passages + len(turns) - fitted.turns + messages.dropped,
            context_tokens=sum(map(len, numbered)),
            marks=marks,
        )

    def _written(self, content: Content, closed: frozenset[str], number: int, passage: Passage) -> Written:
        chunks = content.index.chunks
        head = self._encode_often(heading(number, place_of(chunks, passage.index, closed)))
        body = chunks.token_ids(passage.index)
        return Written(passage, (*head, *body, *self._encode_often("\n\n")))


class Answering:
    """One admitted question. `steps` is iterated once, to its end or until it is closed."""

    def __init__(self, prepared: Prepared, engine: Engine, gate: Gate, clock: Clock) -> None:
        self.prepared = prepared
        self.answer = Answer(prepared)
        self._marks = prepared.marks
        self._engine = engine
        self._gate = gate
        self._clock = clock
        self._held = True
        self._generates = False
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        """What is sent beside the answer."""
        self.on_close: Callable[[], None] | None = None
        """Called once, when the place is given back."""

    async def steps(self) -> AsyncGenerator[Step, None]:
        """The answer in pieces; the last one has a finish reason. Closing it aborts the engine's request.

        A piece is held by its reader until the next one is asked for, and the last one until the end is.
        """
        scanner = Scanner(len(self.prepared.sources))
        self._marks.handed = self._clock()
        prepared = self.prepared
        deltas = self._engine.generate(prepared.request_id, prepared.prompt_ids, prepared.sampling, salt=prepared.salt)
        self._generates = True
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    self._count(delta, self._clock())
                    citations = scanner.feed(delta.text)
                    self.answer.citations += citations
                    if delta.finish_reason:
                        self._finish(delta.finish_reason)
                    since = self._clock()
                    self._marks.awaited = None
                    yield Step(delta.text, citations, delta.finish_reason, delta.odds)
                    self._taken(since, self._clock())
        except EngineDiedError as error:
            raise ServeError(Failure.UNAVAILABLE, "The model stopped while answering. Try again.") from error
        finally:
            self.close()

    @property
    def is_finished(self) -> bool:
        """Whether the answer came to its end."""
        return self._marks.finished is not None

    def deliver(self) -> None:
        """The client has taken the end of the answer."""
        self._marks.delivered = self._clock()

    @property
    def tokens_used(self) -> int:
        """Of the prompt, once the engine has it, and of the answer so far."""
        return len(self.prepared.prompt_ids) + self.answer.completion_tokens if self._generates else 0

    def close(self) -> None:
        """Give the place back; twice does no harm."""
        if self._held:
            self._held = False
            self._gate.leave(self._clock() - self._marks.began if self.is_finished else None)
            if self.on_close:
                self.on_close()

    def _taken(self, since: float, now: float) -> None:
        """The reader has taken a piece that it held since then, and waits for the next."""
        self._marks.held.append((since, now))
        self._marks.awaited = now if self._marks.first_token is not None else None

    def _count(self, delta: Delta, now: float) -> None:
        self.answer.completion_tokens += delta.token_count
        self.answer.cached_tokens = max(self.answer.cached_tokens, delta.cached_tokens)
        if delta.times is not None:
            self._marks.engine = delta.times
        if self._marks.first_token is None and delta.token_count:
            self._marks.first_token = now
        elif self._marks.awaited is not None:
            self._marks.longest_gap = max(self._marks.longest_gap, now - self._marks.awaited)

    def _finish(self, reason: str) -> None:
        self.answer.finish_reason = reason
        self._marks.finished = self._clock()
        self._marks.awaited = None
        self.answer.stages = milliseconds(self._marks)


def _measured(passages: tuple[Passage, ...], settings: Retrieval) -> list[tuple[int, Passage]]:
    """The number that each passage is measured with: the widest, where its own is settled later."""
    stable = settings.context_order is ContextOrder.STABLE
    return [(len(passages) if stable else rank, passage) for rank, passage in enumerate(passages, 1)]


def _sampling(question: Question, prompt: Prompt, answer_tokens: int) -> Sampling:
    return Sampling(
        max_tokens=answer_tokens,
        temperature=prompt.temperature if question.temperature is None else question.temperature,
        top_p=question.top_p,
        seed=question.seed,
        stop=question.stop,
        presence_penalty=question.presence_penalty,
        frequency_penalty=question.frequency_penalty,
        logit_bias=question.logit_bias,
        logprobs=question.logprobs,
        json_schema=question.json_schema,
    )
