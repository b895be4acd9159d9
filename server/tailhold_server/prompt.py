"""Passages, history and question to a prompt that fits the model's window."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailhold_api.serving import ContextOrder, Overflow
from tailhold_server.errors import ServeError, invalid
from tailhold_server.template import Skeleton, Turn


@dataclass(frozen=True)
class Passage:
    """A retrieved chunk and its rank."""

    index: int
    """Place in the snapshot."""
    score: float


@dataclass(frozen=True)
class Written:
    """A passage as it stands in a prompt, heading included."""

    passage: Passage
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """What a prompt has to fit into."""

    limit_tokens: int
    """Prompt and answer together."""
    context_tokens: int
    """Most tokens of passages."""
    prompt_tokens: int | None = None
    """Most tokens of the prompt alone; what an answer of one token leaves where it is not given."""
    on_overflow: Overflow = Overflow.DROP_CHUNKS

    @property
    def most(self) -> int:
        """Tokens that a prompt may have."""
        return min(self.prompt_tokens or self.limit_tokens, self.limit_tokens - 1)


@dataclass(frozen=True)
class Fit:
    """What stays of passages and history, and the room for the answer."""

    passages: int
    """Kept, from the most relevant."""
    turns: int
    """Kept, from the newest."""
    answer_tokens: int


def reserved_tokens(asked: int, limit: int) -> int:
    """Room kept for the answer: what is asked for, at most half of the window.

    Beyond that it is a cap and no reservation: a client that sends a million is not answered without sources.
    """
    return min(asked, limit // 2)


def fit(window: Window, *, fixed: int, asked: int, passages: Sequence[int], turns: Sequence[int]) -> Fit:
    """Drop what has to go: the least relevant passages first, then the oldest turns.

    `passages` are tokens by relevance, `turns` tokens from the oldest, `fixed` the tokens that are never cut.
    Raises ServeError where these alone leave no room for an answer, and with `Refuse` where anything has to go.
    """
    if fixed > window.most:
        raise too_long(fixed, window)
    room = min(window.limit_tokens - reserved_tokens(asked, window.limit_tokens), window.most) - fixed
    history = sum(turns)
    kept = _kept(passages, min(window.context_tokens, room - history))
    kept_turns = len(turns) if history <= room else _kept(tuple(reversed(turns)), room)
    wanted = _kept(passages, window.context_tokens)
    if window.on_overflow is Overflow.REFUSE and (kept < wanted or kept_turns < len(turns)):
        raise overflowing(fixed + history + sum(passages[:wanted]), window)
    used = fixed + sum(passages[:kept]) + sum(turns[len(turns) - kept_turns :])
    return Fit(kept, kept_turns, min(asked, window.limit_tokens - used))


def shortened(question: Sequence[int], others: int, window: Window) -> Sequence[int]:
    """The question's beginning, with `Truncate` and beside `others` tokens that are never cut; else all of it."""
    if window.on_overflow is not Overflow.TRUNCATE:
        return question
    return question[: max(1, window.most - others)]


def overflowing(tokens: int, window: Window) -> ServeError:
    """What a client reads where nothing may be left out."""
    return invalid(
        f"History, sources and question take {tokens} tokens with room for the answer beside them, a prompt may have "
        f"{window.most}, and this pipeline leaves nothing out (`prompt.onOverflow: Refuse`). Send less history, or ask "
        "for a shorter answer.",
        "messages",
        "context_length_exceeded",
    )


def too_long(tokens: int, window: Window) -> ServeError:
    """What a client reads whose question alone does not fit."""
    limit = f" and a prompt may have {window.most}" if window.prompt_tokens else ""
    return invalid(
        f"This model's maximum context length is {window.limit_tokens} tokens{limit}. The system message and the last "
        f"question alone take {tokens} tokens, and the answer needs at least one. Shorten the question.",
        "messages",
        "context_length_exceeded",
    )


def far_too_long(characters: int, most: int, limit: int) -> ServeError:
    """What a client reads whose question is so long that its tokens need not be counted."""
    return invalid(
        f"This model's maximum context length is {limit} tokens, which hold at most {most} characters. The system "
        f"message and the last question alone have {characters}. Shorten the question.",
        "messages",
        "context_length_exceeded",
    )


def arrange(written: Sequence[Written], order: ContextOrder) -> tuple[Written, ...]:
    """The order in which kept passages stand in the prompt; their numbers follow it."""
    if order is ContextOrder.STABLE:
        return tuple(sorted(written, key=lambda each: each.passage.index))
    return tuple(written)


def compose(
    skeleton: Skeleton,
    *,
    system: Sequence[int],
    turns: Sequence[Turn],
    passages: Sequence[Sequence[int]],
    question: Sequence[int],
) -> list[int]:
    """System first, so that its KV blocks are shared; then history; passages and question last."""
    return skeleton.join(system, turns, [*passages, question])


def _kept(tokens: Sequence[int], room: int) -> int:
    used = 0
    for kept, each in enumerate(tokens):
        used += each
        if used > room:
            return kept
    return len(tokens)
