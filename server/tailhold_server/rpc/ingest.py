"""Documents that come in pieces."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.handlers.store import VectorStore
from tailhold_server.handlers.stored import StoredFile
from tailhold_server.routes.files import limited
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.uploads.entry import About
from tailhold_server.uploads.names import checked_name

_PURPOSE = "user_data"
Record = Callable[[str, About], Awaitable[None]]
"""Called with each file that has come, before it is part of the corpus."""


async def ingest(
    store: VectorStore, parts: AsyncIterator[api.IngestRequest], receive_seconds: float, record: Record
) -> list[StoredFile]:
    """All documents, kept one by one. What was kept before an error stays; of the one that comes nothing does.

    A client that sends nothing for so long is sent away. Raises ServeError.
    """
    kept = []
    part = await _next(parts, receive_seconds)
    while part is not None:
        document = _begun(part)
        async with store.receiving() as incoming:
            take = limited(store, incoming, store.limits.max_file_mebibytes << 20)
            while (part := await _next(parts, receive_seconds)) and part.WhichOneof("part") != "document":
                await take(part.data)
            name, about = await store.keep(incoming, document.filename, _PURPOSE)
        await record(name, about)
        kept.append(await store.add(name, convert.attributes(document)))
    return kept


async def _next(parts: AsyncIterator[api.IngestRequest], seconds: float) -> api.IngestRequest | None:
    """None at the end."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(parts, None)
    except TimeoutError:
        told = f"Nothing more of the documents came for {seconds:g} s. Send again those that were not answered."
        raise ServeError(Failure.TOO_SLOW, told) from None


def _begun(part: api.IngestRequest) -> api.Document:
    if part.WhichOneof("part") != "document":
        raise invalid("`data` came before a `document`: send its name first", "data")
    checked_name(part.document.filename, "document.filename")
    convert.attributes(part.document)
    return part.document
