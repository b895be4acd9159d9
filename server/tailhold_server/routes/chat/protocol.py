"""OpenAI's request for a chat completion: small and closed; what is not carried out is refused by name."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from tailhold_api.serving import Retrieval
from tailhold_server.errors import ServeError, invalid
from tailhold_server.question import Message, Question, Role

HARMLESS: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "n": (None, 1),
    "parallel_tool_calls": (None, True, False),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "response_format": (None, {"type": "text"}),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "verbosity": (None,),
    "web_search_options": (None,),
}
"""Fields of OpenAI's that are not carried out, with the values that ask for nothing and are accepted."""
_ABOUT_PASSAGES = ("rag", "top_k", "topK", "max_num_results")
"""What clients of other servers ask for more passages with."""
_MOST = next(bound.le for bound in Retrieval.model_fields["top_k"].metadata if hasattr(bound, "le"))
_TOP_K = f"; how many passages are looked up is the pipeline's `retrieval.topK`, at most {_MOST}"


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WireRole(StrEnum):
    """`developer` is OpenAI's newer name of `system`."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"


class ChatMessage(_Wire):
    """One message. What clients echo of earlier answers is accepted and not read."""

    role: WireRole
    content: str | list[dict[str, Any]] | None = None
    name: str | None = Field(None, max_length=200)
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None


class StreamOptions(_Wire):
    """How a stream ends."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(_Wire):
    """A request for a chat completion."""

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
    user: str | None = Field(None, max_length=1000)
    safety_identifier: str | None = Field(None, max_length=1000)
    prompt_cache_key: str | None = Field(None, max_length=1000)
    metadata: dict[str, str] | None = Field(None, max_length=16)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for name, harmless in HARMLESS.items():
            if name in data and not any(_is_same(data[name], value) for value in harmless):
                raise invalid(f"`{name}` is not supported: leave it out", name, "unsupported_parameter")
        return {name: value for name, value in data.items() if name not in HARMLESS}

    @field_validator("stop")
    @classmethod
    def _check_stop(cls, stop: str | list[str] | None) -> str | list[str] | None:
        strings = [stop] if isinstance(stop, str) else stop or []
        if len(strings) > 4 or any(not 1 <= len(each) <= 200 for each in strings):
            raise ValueError("at most 4 strings of 1 to 200 characters each")
        return stop

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)


def parse(body: bytes) -> ChatRequest:
    """Read strictly. Raises ServeError that names the field."""
    try:
        request = ChatRequest.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise _as_invalid(error) from None
    if request.stream_options is not None and not request.stream:
        raise invalid("`stream_options` is allowed only with `stream: true`", "stream_options")
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
    )


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


def _is_same(value: Any, harmless: Any) -> bool:
    return type(value) is type(harmless) and bool(value == harmless)


def _as_invalid(error: ValidationError) -> ServeError:
    """Names the first error, within its field the innermost: of a union, the branch that fits best."""
    errors = error.errors(include_url=False, include_input=False)
    where = _where(errors[0])
    first = max((each for each in errors if _where(each)[: len(where)] == where), key=lambda each: len(_where(each)))
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _where(first)).removeprefix(".")
    if first["type"] == "extra_forbidden":
        more = _TOP_K if param in _ABOUT_PASSAGES else ""
        return invalid(f"`{param}` is not a field of this API: leave it out{more}", param, "unknown_parameter")
    return invalid(f"`{param}`: {first['msg']}" if param else first["msg"], param or None)


def _where(error: ErrorDetails) -> list[int | str]:
    return [part for part in error["loc"] if not _is_branch(part)]


def _is_branch(part: int | str) -> bool:
    """Names of a union's branches, which pydantic puts into the path."""
    return isinstance(part, str) and (part in ("str", "constrained-list") or part.startswith("list["))
