"""Lists in pages, as OpenAI's clients walk through them."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from tailhold_server.errors import invalid

Item = TypeVar("Item")


class Order(StrEnum):
    """By the time of creation."""

    ASC = "asc"
    DESC = "desc"


def page(
    items: Sequence[Item],
    key: Callable[[Item], tuple[int, str]],
    *,
    limit: int,
    order: Order,
    after: str | None = None,
    before: str | None = None,
) -> tuple[list[Item], bool]:
    """At most `limit` items from behind `after`, or up to `before`, and whether there are more.

    `key` gives time and id: equal times stand by id, so that no item is met twice or missed. Raises ServeError.
    """
    ranked = sorted(items, key=key, reverse=order is Order.DESC)
    ids = [key(each)[1] for each in ranked]
    start = _place(ids, after, "after") + 1 if after else 0
    end = _place(ids, before, "before") if before else len(ranked)
    window = ranked[start:end]
    if before and not after:
        return window[-limit:], len(window) > limit
    return window[:limit], len(window) > limit


def page_body(bodies: Sequence[dict[str, Any]], more: bool) -> dict[str, Any]:
    """A page on the wire."""
    first, last = (bodies[0]["id"], bodies[-1]["id"]) if bodies else (None, None)
    return {"object": "list", "data": list(bodies), "first_id": first, "last_id": last, "has_more": more}


def _place(ids: Sequence[str], cursor: str, param: str) -> int:
    try:
        return ids.index(cursor)
    except ValueError:
        raise invalid(f"`{param}`: `{cursor[:100]}` is not in the list", param) from None
