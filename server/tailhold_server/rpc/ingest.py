"""Documents that come in pieces."""

from collections.abc import AsyncIterator, Awaitable, Callable

from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.handlers.store import VectorStore
from tailhold_server.handlers.stored import StoredFile
from tailhold_server.patience import LEAST_BYTES_PER_SECOND, Patience
from tailhold_server.routes.files import limited
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.uploads.entry import About
from tailhold_server.uploads.names import checked_name

_PURPOSE = "user_data"
Record = Callable[[str, About], Awaitable[None]]
"""Called with each file that is kept, before it is part of the corpus."""


async def ingest(
    store: VectorStore, parts: AsyncIterator[api.IngestRequest], receive_seconds: float, record: Record
) -> list[StoredFile]:
    """All documents, kept one by one. What was kept before an error stays; of the one that comes nothing does.

    A client that sends nothing for so long is sent away. Raises ServeError.
    """
    kept, coming = [], _Coming(parts, receive_seconds)
    part = await coming.next()
    while part is not None:
        document = _begun(part)
        async with store.receiving() as incoming:
            take = limited(store, incoming, store.limits.max_file_mebibytes << 20)
            while (part := await coming.next()) and part.WhichOneof("part") != "document":
                await take(part.data)
            name, _ = await store.keep(incoming, document.filename, _PURPOSE, record)
        kept.append(await store.add(name, convert.attributes(document)))
    return kept


class _Coming:
    """Messages of a client, for as long as it is waited for. Empty ones are refused: they would hold the call open."""

    def __init__(self, parts: AsyncIterator[api.IngestRequest], seconds: float) -> None:
        self._parts = parts
        self._seconds = seconds
        self._patience = Patience(seconds)

    async def next(self) -> api.IngestRequest | None:
        """None at the end. Raises ServeError."""
        try:
            part = await self._patience.wait(anext(self._parts, None))
        except TimeoutError:
            told = f"Nothing more of the documents came for {self._seconds:g} s, or less than {LEAST_BYTES_PER_SECOND} "
            raise ServeError(
                Failure.TOO_SLOW, f"{told}bytes a second. Send again those that were not answered."
            ) from None
        if part is not None:
            self._came(part)
        return part

    def _too_slow(self) -> ServeError:
        return ServeError(
            Failure.TOO_SLOW,
            f"Nothing more of the documents came for {self._seconds:g} s, or less than {LEAST_BYTES_PER_SECOND} bytes "
            "a second. Send again those that were not answered.",
        )

    def _came(self, part: api.IngestRequest) -> None:
        match part.WhichOneof("part"):
            case "document":
                self._patience.renew()
            case "data":
                self._patience.came(len(part.data))
            case _:
                raise invalid("a message has neither a `document` nor `data`: send one of them", "part")


def _begun(part: api.IngestRequest) -> api.Document:
    if part.WhichOneof("part") != "document":
        raise invalid("`data` came before a `document`: send its name first", "data")
    checked_name(part.document.filename, "document.filename")
    convert.attributes(part.document)
    return part.document
