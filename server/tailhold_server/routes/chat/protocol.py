"""OpenAI's request for a chat completion: small and closed; what is not carried out is refused by name."""

import json
from enum import Enum, StrEnum, auto
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from tailhold_api.serving import Retrieval
from tailhold_server.errors import invalid
from tailhold_server.question import Message, Question, Role
from tailhold_server.routes.fields import CHAT, Fields
from tailhold_server.routes.reading import Wire, read

_MOST = next(bound.le for bound in Retrieval.model_fields["top_k"].metadata if hasattr(bound, "le"))
_TOP_K = f"; how many passages are looked up is the pipeline's `retrieval.topK`, at most {_MOST}"
_NOTES = dict.fromkeys(("rag", "top_k", "topK", "max_num_results"), _TOP_K)
"""What clients of other servers ask for more passages with."""
_ANY_OBJECT = '{"type":"object"}'


class WireRole(StrEnum):
    """`developer` is OpenAI's newer name of `system`."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"


class ChatMessage(Wire):
    """One message. What clients echo of earlier answers is accepted and not read."""

    role: WireRole
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(None, max_length=200)
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None


class Usage(Enum):
    """Which chunks of a stream say how many tokens there were."""

    NOWHERE = auto()
    LAST = auto()
    """A chunk of its own after the answer; it is null on those before."""
    EVERYWHERE = auto()
    """That chunk, and each before it, with what was written until then."""


class StreamOptions(Wire):
    """What a stream says beside the answer."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """As vLLM has it: it adds to `include_usage`, and is nothing without it."""
    include_obfuscation: bool | None = None


class FormatKind(StrEnum):
    """What an answer has to be."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


class NamedSchema(Wire):
    """A JSON schema with its name."""

    name: str = Field(min_length=1, max_length=64)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Wire):
    """What an answer has to be."""

    type: FormatKind
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.type is FormatKind.JSON_SCHEMA) != (self.json_schema is not None):
            raise ValueError("`json_schema` is given with the type `json_schema`, and with no other")
        return self


class ChatRequest(Wire):
    """A request for a chat completion."""

    FIELDS: ClassVar[Fields] = CHAT

    messages: list[ChatMessage] = Field(min_length=1, max_length=1000)
    model: str | None = Field(None, max_length=200)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: str | list[str] | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(None, max_length=300)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None
    user: str | None = Field(None, max_length=1000)
    safety_identifier: str | None = Field(None, max_length=1000)

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        strings = [stop] if isinstance(stop, str) else stop or []
        if len(strings) > 4 or any(not 1 <= len(each) <= 200 for each in strings):
            raise ValueError("at most 4 strings of 1 to 200 characters each")
        return stop

    @property
    def usage(self) -> Usage:
        """Where a stream has its usage."""
        asked = self.stream_options
        if not self.stream or asked is None or not asked.include_usage:
            return Usage.NOWHERE
        return Usage.EVERYWHERE if asked.continuous_usage_stats else Usage.LAST


def parse(body: bytes) -> ChatRequest:
    """Read strictly. Raises ServeError that names the field."""
    request = read(ChatRequest, body, _NOTES)
    if request.stream_options is not None and not request.stream:
        raise invalid("`stream_options` is allowed only with `stream: true`", "stream_options")
    if request.top_logprobs and not request.logprobs:
        raise invalid("`top_logprobs` is allowed only with `logprobs: true`", "top_logprobs")
    return request


def question(request: ChatRequest) -> Question:
    """What the pipeline is asked. Raises ServeError."""
    messages = tuple(_message(place, each) for place, each in enumerate(request.messages))
    if messages[-1].role is not Role.USER or not messages[-1].text.strip():
        place = len(messages) - 1
        raise invalid("the last message must have the role `user` and a text", f"messages[{place}]")
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    return Question(
        messages,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p or 1.0,
        seed=request.seed,
        stop=stop,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        logit_bias=_bias(request.logit_bias or {}),
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        json_schema=_schema(request.response_format),
    )


def _bias(given: dict[str, float]) -> tuple[tuple[int, float], ...]:
    for token in given:
        if not (token.isascii() and token.isdigit() and len(token) < 10):
            raise invalid(f"`logit_bias`: `{token[:50]}` is no token id", "logit_bias")
    return tuple(sorted((int(token), bias) for token, bias in given.items()))


def _schema(form: ResponseFormat | None) -> str | None:
    if form is None or form.type is FormatKind.TEXT:
        return None
    return json.dumps(form.json_schema.schema_) if form.json_schema else _ANY_OBJECT


def _message(place: int, message: ChatMessage) -> Message:
    role = Role.SYSTEM if message.role is WireRole.DEVELOPER else Role(message.role.value)
    return Message(role, _text(place, message.content))


def _text(place: int, content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part(f"messages[{place}].content[{number}]", part) for number, part in enumerate(content))


def _part(where: str, part: dict[str, Any]) -> str:
    kind, text = part.get("type"), part.get("text")
    if kind != "text":
        raise invalid(f"{where}: parts of type `{kind}` are not supported, only `text`", where)
    if not isinstance(text, str):
        raise invalid(f"{where}: `text` must be a string", where)
    return text
