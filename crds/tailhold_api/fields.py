"""How a field of the API is written: closed models, camelCase on the wire, and a class that says what a change does."""

from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

CLASS_KEY = "x-tailhold-class"
"""Where a field's class stands in its JSON schema."""


class FieldClass(StrEnum):
    """What a change of a field does to the running pods."""

    RESTART = "restart"
    """Part of the pod part of a revision: a change makes new pods."""
    RELOAD = "reload"
    """Part of the content part: a new index snapshot is loaded by the running pods, no restart."""
    LIVE = "live"
    """Part of the content part: pushed to the running pods, no restart."""
    POLICY = "policy"
    """No part of a revision: takes effect in the operator."""


class Rule(NamedTuple):
    """A check between fields that the API server makes with CEL."""

    expression: str
    """CEL over `self`, the object that declares the rule."""
    message: str
    """What the user reads: field, what is allowed, the next step."""
    accepted: dict[str, Any]
    """An object that passes: proved against a real API server."""
    refused: dict[str, Any]
    """An object that is refused: proved against a real API server."""
    message_expression: str = ""
    """CEL over `self` of the message with what breaks the rule in it, where `message` alone does not say which."""


class Model(BaseModel):
    """A frozen, closed part of the API. Attribute docstrings become the CRD's descriptions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        use_enum_values=False,
        protected_namespaces=(),
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Checks between the fields of this object."""


def restart(default: Any = ..., **bounds: Any) -> Any:
    """A field whose change makes new pods."""
    return _classed(FieldClass.RESTART, default, bounds)


def reload(default: Any = ..., **bounds: Any) -> Any:
    """A field whose change is loaded by the running pods from a new snapshot."""
    return _classed(FieldClass.RELOAD, default, bounds)


def live(default: Any = ..., **bounds: Any) -> Any:
    """A field whose change is pushed to the running pods."""
    return _classed(FieldClass.LIVE, default, bounds)


def policy(default: Any = ..., **bounds: Any) -> Any:
    """A field that the operator alone acts on."""
    return _classed(FieldClass.POLICY, default, bounds)


def part(default: type[BaseModel]) -> Any:
    """A block whose fields have classes of their own; left out, it is the block of defaults."""
    return Field(default_factory=default)


def _classed(field_class: FieldClass, default: Any, bounds: dict[str, Any]) -> Any:
    extra: dict[str, Any] = {CLASS_KEY: field_class.value}
    return Field(default, json_schema_extra=extra, **bounds)


def field_class(model: type[BaseModel], name: str) -> FieldClass | None:
    """The class of a field, or None where its parts have classes of their own."""
    extra = model.model_fields[name].json_schema_extra
    return FieldClass(str(extra[CLASS_KEY])) if isinstance(extra, dict) and CLASS_KEY in extra else None
