"""What a reader takes from records of each kind: who can write to the claim can seal a record of any other form."""

from collections.abc import Mapping
from typing import Any

_FORMS: Mapping[str, Mapping[str, type]] = {
    "opened": {"pipeline": str, "pod": str, "left": list},
    "begun": {"request": str},
    "ended": {"request": str},
    "removed": {"pod": str, "file": str, "first": int, "last": int, "lastHash": str, "time": str},
}


def misformed(record: Mapping[str, Any]) -> str:
    """What no server writes in a record of this kind; empty for nothing. Kinds that are not known here are let pass."""
    kind = record.get("kind")
    for name, wanted in _FORMS.get(kind, {}).items() if isinstance(kind, str) else ():
        if not isinstance(record.get(name), wanted):
            return f"record {record['seq']} is of the kind {kind}, and no server writes its `{name}` so"
    if kind == "opened" and not all(map(_is_left, record["left"])):
        return f"record {record['seq']} is of the kind {kind}, and no server writes its `left` so"
    return ""


def _is_left(each: Any) -> bool:
    return isinstance(each, dict) and isinstance(each.get("file"), str)
