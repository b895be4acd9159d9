"""How Kubernetes writes names, labels and paths: what is refused here is not refused by the first pod."""

import json
import re
from typing import Annotated, Any

from pydantic import Field

from tailhold_api.fields import Rule

_WORD = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = rf"{_WORD}(\.{_WORD})*"
_LABEL_KEY = f"^({_NAME}/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?$"
_CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Characters that cannot be printed, for use in a class."""
_STEP = r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*"
"""A step of a path: neither `.` nor `..`."""

NAME: dict[str, Any] = {"min_length": 1, "max_length": 253, "pattern": f"^{_NAME}$"}
"""Bounds of the name of an object."""
WORD: dict[str, Any] = {"min_length": 1, "max_length": 50, "pattern": f"^{_WORD}$"}
"""Bounds of a name within a pod, with room for a prefix."""
KEY: dict[str, Any] = {"min_length": 1, "max_length": 253, "pattern": r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$"}
"""Bounds of a key of a Secret or ConfigMap."""
LABEL_KEY: dict[str, Any] = {"min_length": 1, "max_length": 317, "pattern": _LABEL_KEY}
"""Bounds of a label's name, with or without the domain in front of it."""
LABEL_VALUE: dict[str, Any] = {"max_length": 63, "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$"}
"""Bounds of a label's value, which may be empty."""
FOLDER: dict[str, Any] = {"min_length": 2, "max_length": 255, "pattern": f"^(/{_STEP})+$"}
"""Bounds of an absolute path that has one spelling alone."""
SUB_PATH: dict[str, Any] = {"min_length": 1, "max_length": 255, "pattern": f"^{_STEP}(/{_STEP})*$"}
"""Bounds of a path within a volume."""

WITHIN: dict[str, Any] = {"max_length": 500, "pattern": f"^[^/{_CONTROL}][^{_CONTROL}]*$"}
"""Bounds of a relative path whose names are the user's own."""
GLOB: dict[str, Any] = {"min_length": 1, "max_length": 500, "pattern": f"^[^{_CONTROL}]+$"}
"""Bounds of a pattern of files."""
NAME_WORDS = (
    "give up to 253 lower-case letters, digits, `-` and `.`, the first and last of each part between dots a letter or"
    " digit"
)
NAMESPACE_WORDS = "give up to 63 lower-case letters, digits and `-`, the first and last of them a letter or digit"

Name = Annotated[str, Field(**NAME)]
Glob = Annotated[str, Field(**GLOB)]
Namespace = Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_WORD}$")]
LabelValue = Annotated[str, Field(**LABEL_VALUE)]


def is_name(value: Any) -> bool:
    """Whether an object may have this name."""
    return isinstance(value, str) and len(value) <= NAME["max_length"] and bool(re.fullmatch(_NAME, value))


def is_namespace(value: Any) -> bool:
    """Whether a namespace may have this name."""
    return isinstance(value, str) and len(value) <= 63 and bool(re.fullmatch(_WORD, value))


def legal_keys(field: str) -> Rule:
    """The names in a map of labels or annotations: OpenAPI has no word for them."""
    return keyed(
        field,
        f"name.size() <= 317 && name.matches('{_LABEL_KEY.replace(chr(92), chr(92) * 2)}')",
        f"`{field}` must have names like `team` or `example.com/team`: letters, digits, `-`, `_` and `.`",
        accepted={field: {"example.com/team": "risk"}},
        refused={field: {"team name": "risk"}},
    )


def keyed(field: str, legal: str, message: str, accepted: dict[str, Any], refused: dict[str, Any]) -> Rule:
    """What each name in a map keeps, CEL over `name`; the message ends with one that does not."""
    named = f"{json.dumps(f'{message}, got `')} + self.{field}.filter(name, !({legal}))[0] + '`'"
    return Rule(f"self.{field}.all(name, {legal})", message, accepted, refused, named)


def one_of(*fields: str, accepted: dict[str, Any], refused: dict[str, Any]) -> Rule:
    """Exactly one of the fields is given."""
    given = ", ".join(f"has(self.{field})" for field in fields)
    words = " and ".join((", ".join(f"`{field}`" for field in fields[:-1]), f"`{fields[-1]}`"))
    return Rule(f"[{given}].filter(x, x).size() == 1", f"exactly one of {words} must be given", accepted, refused)


def once(field: str, key: str, accepted: dict[str, Any], refused: dict[str, Any]) -> Rule:
    """No two entries of a list have the same key."""
    return Rule(
        f"self.{field}.all(each, self.{field}.exists_one(other, other.{key} == each.{key}))",
        f"`{field}` must have each `{key}` once: take the second one out, or change it",
        accepted,
        refused,
    )
