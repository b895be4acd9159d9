"""Whether everything that one schema takes is taken by a later one, and means the same."""

import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_AT_MOST = ("minimum", "minLength", "minItems", "minProperties")
_AT_LEAST = ("maximum", "maxLength", "maxItems", "maxProperties")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*")


def narrowings(old: Schema, new: Schema) -> list[str]:
    """A line for each way in which `new` refuses or changes what `old` took, each with the field's path."""
    added = _words(new) - _words(old)
    return [f"{path}: {what}" for path, what in _compared(old, new, "", added)]


def _compared(old: Schema, new: Schema, path: str, added: set[str]) -> Iterator[tuple[str, str]]:
    for what in (*_type(old, new), *_bounds(old, new), *_values(old, new), *_rules(old, new, added)):
        yield path or ".", what
    if _default(old.get("default"), new.get("default")):
        yield path, f"the default was {old.get('default')!r} and is {new.get('default')!r}"
    for name, child in old.get("properties", {}).items():
        if name in new.get("properties", {}):
            yield from _compared(child, new["properties"][name], f"{path}.{name}", added)
        else:
            yield f"{path}.{name}", "the field is gone"
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict):
            yield from _compared(old[key], new.get(key) or {}, f"{path}[]", added)


def _type(old: Schema, new: Schema) -> Iterator[str]:
    before, after = old.get("type"), new.get("type")
    if before != after and (before, after) != ("integer", "number"):
        yield f"the type was {before} and is {after}"
    if new.get("format") not in (None, old.get("format")):
        yield f"the format is {new['format']}"


def _bounds(old: Schema, new: Schema) -> Iterator[str]:
    for key in (*_AT_MOST, *_AT_LEAST, "multipleOf"):
        if key in new and (key not in old or _is_tighter(key, old[key], new[key])):
            yield f"{key} was {old.get(key)} and is {new[key]}"


def _is_tighter(key: str, before: float, after: float) -> bool:
    if key == "multipleOf":
        return before % after != 0
    return after > before if key in _AT_MOST else after < before


def _values(old: Schema, new: Schema) -> Iterator[str]:
    if "enum" in new and ("enum" not in old or set(old["enum"]) - set(new["enum"])):
        yield f"the values were {old.get('enum')} and are {new['enum']}"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"the pattern was {old.get('pattern')} and is {new['pattern']}"
    required = set(new.get("required", ())) - set(old.get("required", ()))
    if required:
        yield f"now required: {', '.join(sorted(required))}"


def _rules(old: Schema, new: Schema, added: set[str]) -> Iterator[str]:
    """New rules; one that speaks of a new field or a new value can refuse nothing that is stored."""
    key = "x-kubernetes-validations"
    known = {each["rule"] for each in old.get(key, ())}
    for each in new.get(key, ()):
        if each["rule"] not in known and not added & set(_WORD.findall(each["rule"])):
            yield f"a new rule: {each['rule']}"


def _default(before: Any, after: Any) -> bool:
    """Whether what a field is when it is left out has changed; a block may have got new fields."""
    if isinstance(before, dict) and isinstance(after, dict):
        return any(name not in after or _default(value, after[name]) for name, value in before.items())
    return bool(before != after)


def _words(schema: Schema) -> set[str]:
    """Names of fields and values."""
    found = {*schema.get("properties", {}), *map(str, schema.get("enum", ()))}
    children = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return found.union(*(_words(child) for child in children if isinstance(child, dict)))
