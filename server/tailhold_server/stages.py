"""Where an answer's time goes: stages that do not overlap, and what none of them explains."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tailhold_server.ports import EngineTimes

_HELD_KEPT = 8
"""Of the times in which a reader held a piece of the answer only those after the engine's last token count."""


class Stage(StrEnum):
    """In the order in which an answer goes through them."""

    TOKENIZE = "tokenize"
    """From admission until the question is token ids."""
    WAIT = "wait"
    """For the batch before, and for others to join."""
    EMBED = "embed"
    SEARCH = "search"
    PROMPT = "prompt"
    """Choosing sources and writing the prompt."""
    QUEUE = "queue"
    """Handed to the engine and not scheduled yet."""
    PREFILL = "prefill"
    """From the first step that works on the prompt to the first token."""
    DECODE = "decode"
    """From the first token to the last, as the engine made them; a reader that lags behind does not stretch it."""
    POSTPROCESS = "postprocess"
    """From the engine's last token until it is text with citations."""
    TRANSPORT = "transport"
    """Writing events and waiting for the client to take them, while the engine does not work on the answer."""


class Interval(NamedTuple):
    """A piece of a stage, in seconds on the monotonic clock."""

    stage: Stage
    start: float
    end: float


@dataclass
class Marks:
    """When an answer passed which point, in seconds on the monotonic clock; None where it did not come so far."""

    began: float
    tokenized: float | None = None
    batched: float | None = None
    embedded: float | None = None
    searched: float | None = None
    found: float | None = None
    """The passages are back on the event loop."""
    written: float | None = None
    handed: float | None = None
    """To the engine."""
    first_token: float | None = None
    """As seen here."""
    engine: EngineTimes | None = None
    """None where the engine does not say."""
    finished: float | None = None
    """The last text is there."""
    delivered: float | None = None
    """The client has taken it."""
    awaited: float | None = None
    """Since when the engine's next token is waited for; None before the first one and while a reader holds one."""
    longest_gap: float = 0.0
    """The longest wait for a token after the first, in seconds."""
    held: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_HELD_KEPT))
    """Since when and until when the reader held a piece of the answer."""

    @property
    def total(self) -> float:
        """Seconds from beginning to end; 0 for an answer that did not end well."""
        return self.finished - self.began if self.finished is not None else 0.0


def intervals(marks: Marks, ended: float) -> tuple[Interval, ...]:
    """In order of time, none overlapping another, within `began` and `ended`, which closes the stage that was open."""
    worked = ended if marks.finished is None else min(marks.finished, ended)
    pieces = (*_before(marks), *_generated(marks, worked), *_after(marks, worked))
    in_order = sorted(pieces, key=lambda each: each.start)
    return (*_clipped(in_order, marks.began, worked), *_clipped(_taken(marks), worked, ended))


def milliseconds(marks: Marks) -> dict[str, float]:
    """Of each stage of a finished answer, then `unaccounted`, which is what they leave of the last, `total`."""
    end = marks.finished if marks.finished is not None else marks.began
    spent = _spent(intervals(marks, end))
    total = 1000 * marks.total
    return spent | {"unaccounted": max(0.0, total - sum(spent.values())), "total": total}


def delivered_milliseconds(marks: Marks) -> dict[str, float]:
    """The same stages with the time that the client took for the end of the answer, which no event can tell it."""
    end = marks.delivered or marks.finished or marks.began
    return _spent(intervals(marks, end))


def _spent(pieces: Iterable[Interval]) -> dict[str, float]:
    spent = {stage.value: 0.0 for stage in Stage}
    for stage, start, end in pieces:
        spent[stage.value] += 1000 * (end - start)
    return spent


def _before(marks: Marks) -> Iterator[Interval]:
    points = (
        (Stage.TOKENIZE, marks.began, marks.tokenized),
        (Stage.WAIT, marks.tokenized, marks.batched),
        (Stage.EMBED, marks.batched, marks.embedded),
        (Stage.SEARCH, marks.embedded, marks.searched),
        (Stage.PROMPT, marks.found, marks.written),
        (Stage.TRANSPORT, marks.written, marks.handed),
    )
    yield from (Interval(stage, start, end) for stage, start, end in points if start is not None and end is not None)


def _generated(marks: Marks, ended: float) -> Iterator[Interval]:
    """An engine that does not say when it scheduled a request has its queue in `prefill`."""
    if marks.handed is None:
        return
    if marks.engine is None:
        first = ended if marks.first_token is None else marks.first_token
        yield Interval(Stage.PREFILL, marks.handed, first)
        yield Interval(Stage.DECODE, first, _last(marks, ended))
        return
    yield Interval(Stage.QUEUE, marks.handed, marks.engine.scheduled)
    yield Interval(Stage.PREFILL, marks.engine.scheduled, marks.engine.first_token)
    yield Interval(Stage.DECODE, marks.engine.first_token, _last(marks, ended))


def _last(marks: Marks, ended: float) -> float:
    if marks.finished is None:
        return ended
    return marks.engine.last_token if marks.engine is not None else marks.finished


def _after(marks: Marks, ended: float) -> Iterator[Interval]:
    """Between the engine's last token and the last text: the reader held an earlier piece, or we were at work."""
    if marks.finished is None:
        return
    at = _last(marks, ended)
    for start, end in marks.held:
        start, end = max(start, at), min(end, marks.finished)
        if start < end:
            yield Interval(Stage.POSTPROCESS, at, start)
            yield Interval(Stage.TRANSPORT, start, end)
            at = end
    yield Interval(Stage.POSTPROCESS, at, marks.finished)


def _taken(marks: Marks) -> Iterator[Interval]:
    """The client takes the end of the answer: no engine's clock that is ahead of ours can claim that time."""
    if marks.finished is not None and marks.delivered is not None:
        yield Interval(Stage.TRANSPORT, marks.finished, marks.delivered)


def _clipped(pieces: Iterable[Interval], began: float, ended: float) -> Iterator[Interval]:
    """Clocks of two processes are read at different moments: what overlaps is cut, what is empty left out."""
    at = began
    for stage, start, end in pieces:
        start, end = max(start, at), min(end, ended)
        if start < end:
            yield Interval(stage, start, end)
            at = end
