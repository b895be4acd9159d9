"""A question as the pipeline takes it, whatever surface it came through."""

from dataclasses import dataclass, replace
from enum import StrEnum


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True)
class Message:
    """One message, its parts joined."""

    role: Role
    text: str


@dataclass(frozen=True)
class Question:
    """What a client asks. The last message is the user's."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None
    """None takes the pipeline's `prompt.maxAnswerTokens`."""
    temperature: float | None = None
    """None takes the pipeline's `prompt.temperature`."""
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids of the generator and what is added to their scores."""
    logprobs: int | None = None
    """How many likelier tokens are told beside each; None tells no probability at all."""
    json_schema: str | None = None
    """What the answer has to be an instance of."""

    @property
    def text(self) -> str:
        """What is looked up: the last message."""
        return self.messages[-1].text


@dataclass(frozen=True)
class Dialogue:
    """The messages by their part in the prompt."""

    system: str
    turns: tuple[tuple[str, str], ...]
    """Earlier (user, assistant), oldest first; either may be empty."""
    last: str
    dropped: int = 0
    """Turns that were left out before their tokens were counted."""

    @property
    def characters(self) -> int:
        """All of it."""
        return len(self.system) + len(self.last) + sum(len(user) + len(answer) for user, answer in self.turns)


def newest(spoken: Dialogue, most: int) -> Dialogue:
    """Without the oldest turns that lie beyond `most` characters: they could not fit, and are not worth counting."""
    room = most - len(spoken.system) - len(spoken.last)
    kept: list[tuple[str, str]] = []
    for user, answer in reversed(spoken.turns):
        room -= len(user) + len(answer)
        if room < 0:
            break
        kept.append((user, answer))
    return replace(spoken, turns=tuple(reversed(kept)), dropped=len(spoken.turns) - len(kept))


def dialogue(pipeline_system: str, messages: tuple[Message, ...]) -> Dialogue:
    """The pipeline's system message first, the client's after it; neighbours of one role are joined."""
    system = [pipeline_system, *(each.text for each in messages if each.role is Role.SYSTEM)]
    rest = _joined([each for each in messages if each.role is not Role.SYSTEM])
    last = rest.pop()
    return Dialogue("\n\n".join(text for text in system if text), _turns(rest), last.text)


def _joined(messages: list[Message]) -> list[Message]:
    joined: list[Message] = []
    for each in messages:
        if joined and joined[-1].role is each.role:
            joined[-1] = Message(each.role, f"{joined[-1].text}\n\n{each.text}")
        else:
            joined.append(each)
    return joined


def _turns(messages: list[Message]) -> tuple[tuple[str, str], ...]:
    if messages and messages[0].role is Role.ASSISTANT:
        messages = [Message(Role.USER, ""), *messages]
    texts = [each.text for each in messages]
    return tuple(zip(texts[::2], texts[1::2], strict=True))
