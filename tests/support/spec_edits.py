"""Every edit of one field of a spec: found from the schema, so that a new field joins by itself."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from spec_examples import at, merged

from tailhold.rules import broken
from tailhold_api.codec import load
from tailhold_api.crd import structural
from tailhold_api.spec import Spec

Path = tuple[str, ...]
_TEXTS = (
    "other",
    "other/one",
    "/other",
    "other.example/one",
    "Exists",
    "NoSchedule",
    "https://other.example/a/",
    "a" * 40,
    "b" * 64,
)
_MAPS = ({"max_logprobs": "5"}, {"example.com/other": "one"})
_SOURCES = ([{"name": "other", "configMap": {"name": "other"}}],)


def one_field_edits(base: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the field's path, a spec that differs from `base` in it alone; fields that no value alone can change are left
    out, as the second source of a one-of."""
    found = {".".join(path): _edited(base, path, node) for path, node in leaves(structural(Spec))}
    return {path: edited for path, edited in found.items() if edited}


def every_field_edit(base: dict[str, Any]) -> dict[str, Any]:
    """One spec that differs from `base` in as many fields as go together."""
    for path, node in leaves(structural(Spec)):
        base = _edited(base, path, node) or base
    return base


def leaves(schema: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Fields without fields of their own, a list or a map counting as one."""
    for name, node in schema["properties"].items():
        if "properties" in node:
            yield from leaves(node, (*path, name))
        else:
            yield (*path, name), node


def _edited(base: dict[str, Any], path: Path, node: dict[str, Any]) -> dict[str, Any] | None:
    before = load(Spec, json.dumps(base))
    for value in _values(node):
        edited = merged(base, at(path, value))
        try:
            after = load(Spec, json.dumps(edited))
        except ValidationError:
            continue
        if after != before and not list(broken(after)):
            return edited
    return None


def _values(node: dict[str, Any]) -> list[Any]:
    kind = node.get("type")
    if "enum" in node:
        return list(node["enum"])
    if kind == "boolean":
        return [True, False]
    if kind in ("integer", "number"):
        return _numbers(node)
    if kind == "array":
        return [*_SOURCES, *([each] for each in _items(node["items"]))]
    return list(_MAPS if kind == "object" else _TEXTS)


def _numbers(node: dict[str, Any]) -> list[Any]:
    step = node.get("multipleOf", 1)
    near = node.get("default", node["minimum"])
    return [near + step, near - step, node["minimum"], node["maximum"], (node["minimum"] + node["maximum"]) / 2]


def _items(node: dict[str, Any]) -> list[Any]:
    if "properties" not in node:
        return _values(node)
    required = {name: _values(node["properties"][name]) for name in node.get("required", ())}
    longest = max(map(len, required.values()), default=1)
    filled = [{name: values[i % len(values)] for name, values in required.items()} for i in range(longest)]
    return filled if required else [{"key": "other", "operator": "Exists"}]
