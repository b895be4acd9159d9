"""Every rule of the spec with its accepted and its refused example, as whole specs."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from spec_examples import MINIMAL, at, merged

from tailhold_api.fields import Model, Rule
from tailhold_api.spec import Spec


def ruled(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Rule]]:
    """Each rule of the spec with the path of the object that declares it."""
    if issubclass(model, Model):
        yield from ((path, rule) for rule in vars(model).get("rules", ()))
    for field in model.model_fields.values():
        for listed, child in _children(field.annotation):
            yield from ruled(child, (*path, f"{field.alias}[]" if listed else str(field.alias)))


def _children(annotation: Any, listed: bool = False) -> Iterator[tuple[bool, type[BaseModel]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield listed, annotation
    for arg in getattr(annotation, "__args__", ()):
        yield from _children(arg, listed or getattr(annotation, "__origin__", None) is tuple)


RULES = [pytest.param(path, rule, id=f"{'.'.join(path) or 'spec'}: {rule.message[:50]}") for path, rule in ruled(Spec)]


def placed(path: tuple[str, ...], example: dict[str, Any]) -> dict[str, Any]:
    """The minimal spec with an example at its place."""
    if not path:
        return merged(MINIMAL, example)
    if "model" in path:  # a source replaces the source of the minimal spec
        place = path.index("model")
        parent = merged(MINIMAL, {})
        target = parent
        for step in path[:place]:
            target = target[step]
        target["model"] = at(path[place + 1 :], example)
        return parent
    if path[:2] == ("index", "snapshot"):  # a given snapshot replaces store and corpus
        snapshot = at(path[2:], example)
        if path[2:3] == ("source",):
            snapshot |= {"digest": "0" * 64}
        return {**{name: MINIMAL[name] for name in ("generator", "embedder")}, "index": {"snapshot": snapshot}}
    if path[:3] == ("slo", "source", "prometheus"):
        example = at(path[3:], example) | {"url": "http://prometheus:9090"}
        path = path[:3]
    return merged(MINIMAL, at(path, example))
