"""Documents that come in pieces."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from tailhold_server.errors import invalid
from tailhold_server.handlers.store import StoredFile, VectorStore
from tailhold_server.routes.files import limited
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.uploads.folder import About, Incoming

_PURPOSE = "user_data"


Record = Callable[[str, About], Awaitable[None]]
"""Called with each file that has come, before it is part of the corpus."""


async def ingest(
    store: VectorStore, parts: AsyncIterator[api.IngestRequest], record: Record
) -> AsyncGenerator[StoredFile, None]:
    """Each document once it is kept. What was kept before an error stays. Raises ServeError."""
    document: api.Document | None = None
    incoming: Incoming | None = None
    try:
        async for part in parts:
            if part.WhichOneof("part") == "document":
                if incoming and document:
                    yield await _kept(store, incoming, document, record)
                document, incoming = part.document, None
                incoming = await _begun(store, document)
            elif incoming is None:
                raise invalid("`data` came before a `document`: send its name first", "data")
            else:
                await asyncio.to_thread(limited(incoming, store.limits.max_file_mebibytes << 20), part.data)
        if incoming and document:
            yield await _kept(store, incoming, document, record)
    finally:
        if incoming:
            incoming.abandon()


async def _begun(store: VectorStore, document: api.Document) -> Incoming:
    if not document.filename:
        raise invalid("`document.filename` is empty", "document.filename")
    convert.attributes(document)
    return await store.receive()


async def _kept(store: VectorStore, incoming: Incoming, document: api.Document, record: Record) -> StoredFile:
    name, about = await store.keep(incoming, document.filename, _PURPOSE)
    await record(name, about)
    return await store.add(name, convert.attributes(document))
