"""Who asks: known from the wire's own proof, never from what a request says of itself."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

SCOPE_KEY = "tailhold.caller"
"""Where a request's scope holds its caller."""


@dataclass(frozen=True)
class Caller:
    """A client, and the tenant that it belongs to; an empty tenant is none."""

    client: str
    tenant: str = ""


ANONYMOUS = Caller("anonymous")
"""Everybody, where nobody has to say who they are."""


def caller_of(scope: MutableMapping[str, Any]) -> Caller:
    """The caller of a request."""
    found = scope.get(SCOPE_KEY, ANONYMOUS)
    return found if isinstance(found, Caller) else ANONYMOUS
