"""Server-sent events as bytes."""

from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


def event(body: dict[str, Any]) -> bytes:
    """One event; JSON holds no line breaks, so it is one line."""
    return b"data: " + orjson.dumps(body) + b"\n\n"
