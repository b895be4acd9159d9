"""The stand-in engine: what the variable `TAILHOLD_STAND_IN` in `pod.env` says of it.

It loads no model. Its answers are made up and its latencies are those that it is told, so that rollouts, faults and
alerts can be rehearsed on a cluster without a GPU. Whoever may read the manifest sees that it is one.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from pydantic import Field, ValidationError

from tailhold_api.faults import faults_of
from tailhold_api.fields import Model
from tailhold_api.names import STAND_IN_VARIABLE
from tailhold_api.variables import Variable

_SHOWN = 300
"""Characters of its behaviour in a status."""


class StandInError(ValueError):
    """What cannot be, with the key that says it; the text is for the user."""


class Vectors(StrEnum):
    """What turns texts into vectors."""

    STAND_IN = "stand-in"
    """Hashes of their words: texts that share words are near each other."""
    MODEL = "model"
    """The embedder of the spec, which is loaded."""


class StandIn(Model):
    """How a stand-in engine behaves."""

    first_token_milliseconds: float = Field(50.0, ge=0, le=600_000)
    """From the moment at which it runs to an answer's first token."""
    token_milliseconds: float = Field(10.0, ge=0, le=60_000)
    """From one token to the next."""
    answer_tokens: int = Field(16, ge=0, le=65_536)
    """Tokens of an answer, where the client does not ask for fewer; 0 repeats the question and ends."""
    slots: int = Field(4, ge=1, le=4096)
    """Answers at once; further requests queue, first come first served. Load makes latency by this alone."""
    jitter_percent: float = Field(0.0, ge=0, le=100)
    """Each answer's times are longer or shorter by up to so much, all as likely."""
    slow_percent: float = Field(0.0, ge=0, le=100)
    """Share of the answers that are slow: the tail."""
    slow_times: float = Field(10.0, ge=1, le=1000)
    """How many times as long these take."""
    times: float = Field(1.0, ge=0.01, le=1000)
    """How many times as long all take. For faults: `times=5` makes it five times as slow, whatever it was."""
    fail_percent: float = Field(0.0, ge=0, le=100)
    """Share of the requests that fail, at once, without taking a slot."""
    start_seconds: float = Field(0.0, ge=0, le=86_400)
    """How long it takes to start."""
    start_fails: bool = False
    """It ends its start with an error, and the pod is started again and again."""
    never_ready: bool = False
    """It goes on starting for ever."""
    dies_after: int = Field(0, ge=0, le=1_000_000_000)
    """It dies with the request after so many, the first of the start among them, and takes the pod with it; 0 is
    never."""
    embedder: Vectors = Vectors.STAND_IN
    """With `model` questions and passages are embedded by the spec's embedder, which takes its memory and its start."""


CHANGEABLE = (
    "first_token_milliseconds",
    "token_milliseconds",
    "jitter_percent",
    "slow_percent",
    "slow_times",
    "times",
    "fail_percent",
)
"""What a fault may change while it runs."""


def stand_in_of(variables: Iterable[Variable]) -> StandIn | None:
    """None where the model is asked for. Raises StandInError."""
    said = next((each.value for each in variables if each.name == STAND_IN_VARIABLE), None)
    return None if said is None else parsed(said)


def is_stand_in(variables: Iterable[Variable]) -> bool:
    """Whether no language model is to be loaded, be what is said of the stand-in right or wrong."""
    return any(each.name == STAND_IN_VARIABLE for each in variables)


def makes_vectors(variables: Sequence[Variable]) -> bool:
    """Whether the embedder is a stand-in too. One that is described wrongly starts nothing, and so reads no model."""
    try:
        said = stand_in_of(variables)
    except StandInError:
        return True
    return said is not None and said.embedder is Vectors.STAND_IN


def disclosed(variables: Iterable[Variable]) -> tuple[str, ...]:
    """What people have to be told of a spec whose answers nobody may take for a model's; nothing of any other."""
    said = next((each.value for each in variables if each.name == STAND_IN_VARIABLE), None)
    if said is None:
        return ()
    shown = said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."
    return (f"stand-in engine: no model is loaded, answers and latencies are made up ({STAND_IN_VARIABLE}: {shown})",)


def parsed(text: str) -> StandIn:
    """From `key=value` pairs apart by blanks or commas. Raises StandInError that names the key."""
    try:
        return StandIn.model_validate_strings(_pairs(text), by_alias=True, by_name=False)
    except ValidationError as error:
        raise _named(error) from None


def changed(stated: StandIn, text: str) -> StandIn:
    """The same with a fault's pairs laid over it. Raises StandInError that names the key."""
    found = parsed(text)
    if fixed := sorted(found.model_fields_set - set(CHANGEABLE)):
        names = {name: str(StandIn.model_fields[name].alias) for name in StandIn.model_fields}
        allowed = ", ".join(f"`{names[name]}`" for name in CHANGEABLE)
        raise StandInError(f"`{names[fixed[0]]}` cannot change while it runs; allowed are {allowed}")
    return stated.model_copy(update={name: getattr(found, name) for name in found.model_fields_set})


def told(stand_in: StandIn) -> str:
    """As it is written, defaults left out."""
    return " ".join(f"{key}={_written(value)}" for key, value in _given(stand_in).items()) or "defaults"


def _given(stand_in: StandIn) -> dict[str, Any]:
    return stand_in.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise StandInError(f"`{word[:100]}` is no `key=value`, as in `firstTokenMilliseconds=40 slots=4`")
        if key in pairs:
            raise StandInError(f"`{key[:100]}` is given twice: take one out")
        pairs[key] = value
    return pairs


def _named(error: ValidationError) -> StandInError:
    lines = (
        f"`{place.removeprefix('.')}`: {what}{f', got {value}' if value else ''}"
        for place, what, value in faults_of(error, StandIn)
    )
    return StandInError("; ".join(lines))
