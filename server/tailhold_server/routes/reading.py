"""Requests read strictly, and mistakes that name the field."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.routes.fields import FieldRule, Treatment

JSON = "application/json"
COMPARISON, JUNCTION = "comparison", "junction"
"""Branches of a filter."""
ONE, SEVERAL = "one", "several"
"""Branches of its value."""
Read = TypeVar("Read", bound="Wire")


@dataclass(frozen=True)
class Said:
    """Marks a union: a value that fits no branch is told what is allowed, not what one of the branches wants."""

    allowed: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "not_allowed", custom_error_message=self.allowed)


class Wire(BaseModel):
    """A request, or a part of one: closed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_what_asks_for_nothing(cls, data: Any) -> Any:
        fields = getattr(cls, "FIELDS", None)
        if fields is None or not isinstance(data, dict):
            return data
        for name in data.keys() & fields.keys():
            _check(name, data[name], fields[name])
        return {name: value for name, value in data.items() if name not in fields or _is_read(fields[name])}


async def body_of(request: Request) -> bytes:
    """The request's JSON as bytes. Raises ServeError with 415 where it says that it is something else."""
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind and kind != JSON and not (kind.startswith("application/") and kind.endswith("+json")):
        told = f"`Content-Type` is `{given[:100]}`: send {JSON}"
        raise ServeError(Failure.MEDIA_TYPE, told, param="content-type")
    return await request.body()


def read(kind: type[Read], body: bytes, notes: Mapping[str, str] | None = None) -> Read:
    """Read strictly. Raises ServeError that names the field; `notes` say more of fields that are not known."""
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise as_invalid(error, notes or {}) from None


def as_invalid(error: ValidationError, notes: Mapping[str, str]) -> ServeError:
    """Names the first error, within its field the innermost: of a union, the branch that fits best."""
    errors = error.errors(include_url=False, include_input=False)
    where = _where(errors[0])
    first = max((each for each in errors if _where(each)[: len(where)] == where), key=lambda each: len(_where(each)))
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _where(first)).removeprefix(".")
    if first["type"] == "extra_forbidden":
        return invalid(
            f"`{param[:200]}` is not a field of this API: leave it out{notes.get(param, '')}",
            param[:200],
            "unknown_parameter",
        )
    return invalid(f"`{param}`: {first['msg']}" if param else first["msg"], param or None)


def json_body(kind: type[Wire]) -> dict[str, Any]:
    """The request body in OpenAPI's words."""
    return {"required": True, "content": {JSON: {"schema": kind.model_json_schema(ref_template=_REF)}}}


_REF = "#/components/schemas/{model}"


def _check(name: str, value: Any, rule: FieldRule) -> None:
    if rule.treatment is Treatment.HONOURED or rule.any_value:
        return
    if not any(_is_same(value, harmless) for harmless in rule.harmless):
        raise invalid(f"`{name}` is not supported: leave it out. {rule.says}", name, "unsupported_parameter")


def _is_read(rule: FieldRule) -> bool:
    return rule.treatment is Treatment.HONOURED


def _is_same(value: Any, harmless: Any) -> bool:
    return type(value) is type(harmless) and bool(value == harmless)


def _where(error: ErrorDetails) -> list[int | str]:
    return [part for part in error["loc"] if not _is_branch(part)]


def _is_branch(part: int | str) -> bool:
    """Names of a union's branches, which pydantic puts into the path."""
    branches = (
        "str",
        "int",
        "float",
        "bool",
        "constrained-list",
        "constrained-str",
        COMPARISON,
        JUNCTION,
        ONE,
        SEVERAL,
    )
    return isinstance(part, str) and (part in branches or part.startswith(("list[", "function-", "lax-or", "nullable")))
