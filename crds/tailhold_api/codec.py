"""Canonical text of a model and its digest, and strict reading."""

import hashlib
import json
from typing import Any, TypeVar

from pydantic import BaseModel

Parsed = TypeVar("Parsed", bound=BaseModel)


def dump(model: BaseModel) -> str:
    """Canonical JSON: sorted keys, wire names, no spaces; equal models give equal text.

    Fields at their default are left out, so that a field added by a later release changes no digest.
    """
    data = model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def load(kind: type[Parsed], text: str | bytes) -> Parsed:
    """Read strictly: a string is no number and an unknown field is an error, as the API server sees it; a field's
    Python name is unknown too.

    Raises pydantic.ValidationError.
    """
    return kind.model_validate_json(text, strict=True, by_alias=True, by_name=False)


def load_lenient(kind: type[Parsed], data: Any) -> Parsed:
    """Read what the API server has already checked: strict in types, blind to fields of a newer release."""
    return kind.model_validate_json(json.dumps(data), strict=True, extra="ignore", by_alias=True, by_name=False)


def digest(model: BaseModel) -> str:
    """64 hex digits of SHA-256 over the canonical text."""
    return hashlib.sha256(dump(model).encode()).hexdigest()
