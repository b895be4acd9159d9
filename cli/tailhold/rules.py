"""Rules between fields without an API server: the little of CEL that they are written in, read as Python."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from tailhold_api.fields import Model

_TRANSLATIONS = (
    (r"(\[[^\]]*\])\.filter\(x, x\)\.size\(\)", r"sum(\1)"),
    (r"\(([^()?]+)\?([^():]+):([^()]+)\)", r"((\2) if (\1) else (\3))"),
    (r"&&", " and "),
    (r"\|\|", " or "),
    (r"!(?!=)", " not "),
    (r"\btrue\b", "True"),
    (r"\bfalse\b", "False"),
)


class _Object:
    """Fields as attributes; one that is not given is None."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        value = self._fields.get(name)
        return _Object(value) if isinstance(value, dict) else value


def holds(expression: str, fields: Mapping[str, Any]) -> bool:
    """Whether an object, as it is on the wire, keeps a rule. Expressions are the API's, never a user's."""
    text = expression
    for pattern, replacement in _TRANSLATIONS:
        text = re.sub(pattern, replacement, text)
    known = {"self": _Object(fields), "has": lambda value: value is not None, "sum": sum}
    return bool(eval(text.strip(), {"__builtins__": {}}, known))  # noqa: S307  see above


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
