"""Lists in pages, as OpenAI's clients walk through them."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from tailhold_server.errors import invalid

Item = TypeVar("Item")
Place = tuple[int, str]
"""Time and id: equal times stand by id, so that no item is met twice or missed."""


class Order(StrEnum):
    """By the time of creation."""

    ASC = "asc"
    DESC = "desc"


def page(
    items: Sequence[Item],
    key: Callable[[Item], Place],
    *,
    limit: int,
    order: Order,
    after: Place | None = None,
    before: Place | None = None,
) -> tuple[list[Item], bool]:
    """At most `limit` items from behind `after`, or up to `before`, and whether there are more. Nothing need stand at
    the places themselves any more."""
    ranked = sorted(items, key=key)
    low, high = (after, before) if order is Order.ASC else (before, after)
    start = 0 if low is None else bisect_right(ranked, low, key=key)
    end = len(ranked) if high is None else bisect_left(ranked, high, key=key)
    window = ranked[start:end] if order is Order.ASC else ranked[start:end][::-1]
    if before and not after:
        return window[-limit:], len(window) > limit
    return window[:limit], len(window) > limit


def place(time: int | None, cursor: str, param: str) -> Place:
    """Where a cursor stands, or stood. Raises ServeError for one that nobody knows."""
    if time is None:
        told = f"`{param}`: `{cursor[:100]}` is not in the list and was not deleted within a day: begin without it"
        raise invalid(told, param)
    return time, cursor


def page_body(bodies: Sequence[dict[str, Any]], more: bool) -> dict[str, Any]:
    """A page on the wire."""
    first, last = (bodies[0]["id"], bodies[-1]["id"]) if bodies else (None, None)
    return {"object": "list", "data": list(bodies), "first_id": first, "last_id": last, "has_more": more}
