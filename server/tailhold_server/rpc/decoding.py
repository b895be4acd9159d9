"""Messages off the wire."""

from collections.abc import AsyncIterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tailhold_server.errors import ServeError, invalid

_Kind = TypeVar("_Kind", bound=Message)


def decoded(kind: type[_Kind], given: bytes) -> _Kind:
    """Raises ServeError for bytes that are no such message."""
    try:
        return kind.FromString(given)
    except DecodeError:
        raise _no_message(kind) from None


async def each_decoded(kind: type[_Kind], given: AsyncIterator[bytes]) -> AsyncIterator[_Kind]:
    """The same of a stream."""
    async for each in given:
        yield decoded(kind, each)


def _no_message(kind: type[Message]) -> ServeError:
    return invalid(f"the request is no `{kind.DESCRIPTOR.full_name}`: make the client of the server's rag.proto")
