"""Rules between fields without an API server: its CEL, evaluated here."""

from collections.abc import Iterator, Mapping
from typing import Any

import cel
from pydantic import BaseModel

from tailhold_api.fields import Model


def holds(expression: str, fields: Mapping[str, Any]) -> bool:
    """Whether an object, as it is on the wire, keeps a rule."""
    return bool(cel.evaluate(expression, {"self": dict(fields)}))


def broken(model: BaseModel, path: str = "") -> Iterator[str]:
    """`path: message` of each rule that the object or a part of it breaks."""
    if isinstance(model, Model):
        wire = model.model_dump(mode="json", by_alias=True, exclude_none=True)
        yield from (f"{path}: {rule.message}" for rule in model.rules if not holds(rule.expression, wire))
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        inner = f"{path}.{field.alias or name}".removeprefix(".")
        parts = value if isinstance(value, tuple) else (value,)
        for each in parts:
            if isinstance(each, BaseModel):
                yield from broken(each, inner)
