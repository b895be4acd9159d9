"""Rules between fields without an API server: its CEL, evaluated here."""

from collections.abc import Iterator, Mapping
from typing import Any

import cel
from pydantic import BaseModel

from tailhold_api.fields import Model, Rule

_LONGEST = 200
"""Characters that a message may be longer by for what it quotes."""


def holds(expression: str, fields: Mapping[str, Any]) -> bool:
    """Whether an object, as it is on the wire, keeps a rule. What cannot be evaluated is broken, as at the server."""
    try:
        return bool(cel.evaluate(expression, {"self": dict(fields)}))
    except RuntimeError:
        return False


def message_of(rule: Rule, fields: Mapping[str, Any]) -> str:
    """What a broken rule says of an object; as at the API server, nothing of the object where that is no clean line."""
    if not rule.message_expression:
        return rule.message
    text = str(cel.evaluate(rule.message_expression, {"self": dict(fields)}))
    clean = text.isprintable() and len(text) <= len(rule.message) + _LONGEST
    return text if clean else rule.message


def broken(model: BaseModel, path: str = "") -> Iterator[str]:
    """`path: message` of each rule that the object or a part of it breaks; entries of lists as `path[0]`."""
    if isinstance(model, Model):
        wire = model.model_dump(mode="json", by_alias=True, exclude_none=True)
        for rule in model.rules:
            if not holds(rule.expression, wire):
                yield f"{path}: {message_of(rule, wire)}"
    for name, field in type(model).model_fields.items():
        inner = f"{path}.{field.alias or name}".removeprefix(".")
        for step, each in _parts(getattr(model, name)):
            yield from broken(each, f"{inner}{step}")


def _parts(value: Any) -> Iterator[tuple[str, BaseModel]]:
    """The objects in a field, each with the step that leads to it."""
    entries = ((f"[{index}]", each) for index, each in enumerate(value)) if isinstance(value, tuple) else [("", value)]
    yield from ((step, each) for step, each in entries if isinstance(each, BaseModel))
