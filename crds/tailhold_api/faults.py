"""What pydantic finds wrong, in words that help."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

_SHOWN = 12
_CLOSE = 0.6


def said(detail: ErrorDetails, root: type[BaseModel]) -> str:
    """What is wrong, without where; `root` is the model that was read."""
    if detail["type"] == "extra_forbidden":
        return _unknown(detail["loc"], root)
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _unknown(location: Sequence[int | str], root: type[BaseModel]) -> str:
    """A field that there is not: the one beside it that was meant, or the same one elsewhere, or all that there are."""
    name, owner = str(location[-1]), _owner(location[:-1], root)
    here = _fields(owner)
    near = _closest(name, list(here))
    if near:
        return f"unknown field, did you mean `{near}`?"
    elsewhere = {path.rpartition(".")[2]: path for path in _paths(root)}
    far = _closest(name, list(elsewhere), 0.85)
    if far:
        return f"unknown field here, did you mean `{elsewhere[far]}`?"
    more = ", ..." if len(here) > _SHOWN else ""
    return f"unknown field, allowed are {', '.join(f'`{each}`' for each in list(here)[:_SHOWN])}{more}"


def _closest(name: str, known: list[str], cutoff: float = _CLOSE) -> str | None:
    """By letters alone: `top_k`, `TopK` and `topk` are all `topK`."""
    plain = {_plain(each): each for each in reversed(known)}
    found = get_close_matches(_plain(name), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _owner(location: Sequence[int | str], root: type[BaseModel]) -> type[BaseModel]:
    """The model of the object at a place; places in lists count for nothing."""
    for step in location:
        root = _fields(root).get(str(step)) or root
    return root


def _fields(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    """By name on the wire: the model of what stands there, where it is an object or a list of them."""
    return {field.alias or name: _model(field.annotation) for name, field in model.model_fields.items()}


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in getattr(annotation, "__args__", ()) if (found := _model(arg))), None)


def _paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every field below, the deepest first, so that the shallowest of like names stays."""
    for name, inner in _fields(model).items():
        if inner:
            yield from _paths(inner, f"{prefix}{name}.")
    yield from (f"{prefix}{name}" for name in _fields(model))
