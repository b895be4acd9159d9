"""What a trace says of an answer: spans made afterwards from its stages, so that the token path does nothing for it.

Counts, names and digests only; no text of a question, a document or an answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tailhold_server.pipeline import Answer
from tailhold_server.stages import Interval, Stage, intervals

ROOT = "rag.pipeline"
_NAMES = {Stage.WAIT: "batch.wait", Stage.SEARCH: "vector.search", Stage.PROMPT: "prompt.build"}
"""Spans that are not called as their stage."""

Value: TypeAlias = str | bool | int | float | Sequence[str]


@dataclass(frozen=True)
class TraceContext:
    """Where a request stands in its trace, as W3C's `traceparent` has it."""

    trace_id: int
    span_id: int
    """Of the span that stands for the request here."""
    parent_id: int | None
    """Of the caller's span."""
    sampled: bool
    """Whether the trace is kept: the caller's choice where there is a caller."""
    state: Mapping[str, str] = field(default_factory=dict)
    """The caller's `tracestate`, passed on as it came."""

    @property
    def name(self) -> str:
        """The trace's id as every tool writes it."""
        return f"{self.trace_id:032x}"

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """For whom this request is passed on to: W3C's `traceparent`, and `tracestate` where there is one."""
        parent = f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"
        state = ",".join(f"{name}={value}" for name, value in self.state.items())
        told = (b"traceparent", parent.encode())
        return (told, (b"tracestate", state.encode())) if state else (told,)


@dataclass(frozen=True)
class Asked:
    """What is known of a request before it is answered."""

    request_id: str
    model: str
    """As the client called it."""
    served: str
    """The pipeline that answers."""
    stream: bool = False


@dataclass(frozen=True)
class Traced:
    """One request that has ended; times in seconds on the monotonic clock."""

    context: TraceContext
    asked: Asked
    began: float
    ended: float
    outcome: str
    """A value of the label `outcome` of `requests_total`."""
    revision: str = ""
    pieces: tuple[Interval, ...] = ()
    facts: Mapping[str, Value] = field(default_factory=dict)
    """Attributes that the answer gave."""


@dataclass(frozen=True)
class SpanData:
    """A span; times in nanoseconds since 1970."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Value]
    failed: bool = False


class Tracer(Protocol):
    """Begins and ends the traces of requests. Never waits, never raises."""

    def begin(self, headers: Mapping[str, str]) -> TraceContext | None:
        """A request came with these headers, their names in small letters. None where nothing is traced."""

    def end(self, traced: Traced) -> None:
        """The request has ended."""

    def close(self) -> None:
        """Sends what is left, for a short time."""


class NoTracer:
    """Nothing is traced."""

    def begin(self, headers: Mapping[str, str]) -> TraceContext | None:
        """None."""

    def end(self, traced: Traced) -> None:
        """Forgotten."""

    def close(self) -> None:
        """Nothing is left."""


def traced(
    context: TraceContext, asked: Asked, began: float, ended: float, outcome: str, answer: Answer | None, revision: str
) -> Traced:
    """What is kept of a request for its spans: no prompt and no text. None as `answer`: it was refused, or
    answered elsewhere."""
    if answer is None:
        return Traced(context, asked, began, ended, outcome, revision)
    pieces = intervals(answer.prepared.marks, ended)
    return Traced(context, asked, began, ended, outcome, revision, pieces, dict(_facts(answer)))


def spans_of(traced: Traced, epoch: int) -> list[SpanData]:
    """The request's span, then those of its stages in order, which do not overlap and lie within it.

    `epoch` is the wall clock's reading in nanoseconds when the monotonic clock read 0.
    """

    def at(seconds: float) -> int:
        return epoch + round(seconds * 1e9)

    root = SpanData(ROOT, at(traced.began), at(traced.ended), dict(_root(traced)), traced.outcome == "failed")
    stages = (
        SpanData(_NAMES.get(stage, stage.value), at(start), at(end), dict(_of_stage(stage, traced.facts)))
        for stage, start, end in traced.pieces
    )
    return [root, *stages]


def _root(traced: Traced) -> Iterator[tuple[str, Value]]:
    asked = traced.asked
    yield "gen_ai.operation.name", "chat"
    yield "gen_ai.provider.name", "tailhold"
    yield "gen_ai.request.model", asked.model
    yield "gen_ai.request.stream", asked.stream
    yield "gen_ai.response.id", asked.request_id
    yield "gen_ai.response.model", asked.served
    yield "tailhold.outcome", traced.outcome
    if traced.revision:
        yield "tailhold.revision", traced.revision
    if traced.outcome == "failed":
        yield "error.type", "failed"
    yield from traced.facts.items()


def _facts(answer: Answer) -> Iterator[tuple[str, Value]]:
    prepared, marks = answer.prepared, answer.prepared.marks
    yield "gen_ai.data_source.id", prepared.content.index.snapshot
    yield "gen_ai.request.max_tokens", prepared.sampling.max_tokens
    yield "gen_ai.request.temperature", prepared.sampling.temperature
    yield "gen_ai.usage.input_tokens", len(prepared.prompt_ids)
    yield "gen_ai.usage.cache_read.input_tokens", answer.cached_tokens
    yield "gen_ai.usage.output_tokens", answer.completion_tokens
    yield "tailhold.sources", len(prepared.sources)
    yield "tailhold.dropped", prepared.dropped
    if answer.finish_reason is not None:
        yield "gen_ai.response.finish_reasons", (answer.finish_reason,)
        yield "tailhold.unaccounted_milliseconds", round(answer.stages["unaccounted"], 3)
    if marks.first_token is not None:
        yield "gen_ai.response.time_to_first_chunk", round(marks.first_token - marks.began, 6)


_OF_STAGE: Mapping[Stage, tuple[str, ...]] = {
    Stage.SEARCH: ("gen_ai.data_source.id",),
    Stage.PROMPT: ("tailhold.sources", "tailhold.dropped"),
    Stage.PREFILL: ("gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens"),
    Stage.DECODE: ("gen_ai.usage.output_tokens",),
}
_OPERATIONS = {Stage.EMBED: "embeddings", Stage.SEARCH: "retrieval"}


def _of_stage(stage: Stage, facts: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    if stage in _OPERATIONS:
        yield "gen_ai.operation.name", _OPERATIONS[stage]
    yield from ((name, facts[name]) for name in _OF_STAGE.get(stage, ()) if name in facts)
