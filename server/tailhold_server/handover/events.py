"""A stream as whole events, without reading what is in them."""

from enum import Enum, auto

_END = b"\n\n"
_DATA = b"data: "
_ERROR = b'data: {"error":'
_COMMENT = b":"


class News(Enum):
    """What the beginning of a stream tells."""

    NOTHING = auto()
    """Role and sources at most: they are known before the model has begun."""
    ALIVE = auto()
    """A comment: it is worked on, and whoever stands between needs a sign of it."""
    TOKEN = auto()
    """The answer has begun."""
    ERROR = auto()
    """There will be none."""


def cut(stream: bytes) -> tuple[bytes, bytes]:
    """The events that are whole, and the beginning of one that is not."""
    if stream.endswith(_END):
        return stream, b""
    at = stream.rfind(_END)
    return (b"", stream) if at < 0 else (stream[: at + 2], stream[at + 2 :])


def news(beginning: bytes) -> News:
    """Of whole events from the stream's first byte on."""
    found, said = News.NOTHING, 0
    for event in beginning.split(_END):
        if event.startswith(_ERROR):
            return News.ERROR
        if event.startswith(_DATA):
            said += 1
            if said > 1:
                return News.TOKEN
        elif event.startswith(_COMMENT):
            found = News.ALIVE
    return found
