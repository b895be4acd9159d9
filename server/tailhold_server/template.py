"""The chat template as token ids: rendered once around sentinels, then joined for every question."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailhold_server.ports import Tokenizer

_SYSTEM, _FIRST, _ANSWER, _LAST = (
    "\u2983system\u2984",
    "\u2983first\u2984",
    "\u2983answer\u2984",
    "\u2983last\u2984",
)


class TemplateError(Exception):
    """The model's chat template does not carry what it is given."""


@dataclass(frozen=True)
class Turn:
    """One earlier question with its answer."""

    user: tuple[int, ...]
    assistant: tuple[int, ...]


@dataclass(frozen=True)
class Skeleton:
    """What a model's chat template puts around system message, questions and answers."""

    opening: tuple[int, ...]
    """Before the system message."""
    system_to_user: tuple[int, ...]
    user_to_assistant: tuple[int, ...]
    assistant_to_user: tuple[int, ...]
    closing: tuple[int, ...]
    """After the last question: the generation prompt."""

    @property
    def fixed_tokens(self) -> int:
        """Tokens of a prompt whose messages are empty and that has no earlier turns."""
        return len(self.opening) + len(self.system_to_user) + len(self.closing)

    def turn_tokens(self, turn: Turn) -> int:
        """Tokens that an earlier turn adds."""
        glue = len(self.user_to_assistant) + len(self.assistant_to_user)
        return len(turn.user) + len(turn.assistant) + glue

    def join(self, system: Sequence[int], turns: Sequence[Turn], last: Sequence[Sequence[int]]) -> list[int]:
        """The prompt; `last` are the pieces of the last user message."""
        ids = [*self.opening, *system, *self.system_to_user]
        for turn in turns:
            ids += [*turn.user, *self.user_to_assistant, *turn.assistant, *self.assistant_to_user]
        for piece in last:
            ids += piece
        ids += self.closing
        return ids


def skeleton(tokenizer: Tokenizer) -> Skeleton:
    """Render the template and cut it at the sentinels.

    A template without a system role gets the system message at the head of the first question.
    """
    pieces = _cut(_try(tokenizer, with_system=True), (_SYSTEM, _FIRST, _ANSWER, _LAST))
    if pieces is None:
        pieces = _without_system(tokenizer)
    return Skeleton(*(tuple(tokenizer.encode_template(piece)) for piece in pieces))


def _without_system(tokenizer: Tokenizer) -> tuple[str, ...]:
    pieces = _cut(_try(tokenizer, with_system=False), (_FIRST, _ANSWER, _LAST))
    if pieces is None:
        raise TemplateError("the model's chat template drops messages or changes their order")
    opening, *rest = pieces
    return (opening, "\n\n", *rest)


def _try(tokenizer: Tokenizer, *, with_system: bool) -> str:
    messages = [("user", _FIRST), ("assistant", _ANSWER), ("user", _LAST)]
    try:
        return tokenizer.render([("system", _SYSTEM), *messages] if with_system else messages)
    except ValueError:
        return ""


def _cut(text: str, sentinels: Sequence[str]) -> tuple[str, ...] | None:
    pieces = []
    for sentinel in sentinels:
        before, found, text = text.partition(sentinel)
        if not found:
            return None
        pieces.append(before)
    return (*pieces, text)
