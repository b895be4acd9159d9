"""`/v1/files`: documents that clients upload."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tailhold_api.sources import UPLOADS
from tailhold_server.access.caller import Caller, caller_of
from tailhold_server.audit.events import Action, File
from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.handlers.store import VectorStore
from tailhold_server.recording import named, record_files, uploaded
from tailhold_server.routes.fields import FILES
from tailhold_server.routes.multipart import KIND, FormReader
from tailhold_server.routes.paging import Order, Place, page, page_body, place
from tailhold_server.service import Service
from tailhold_server.uploads.entry import About
from tailhold_server.uploads.incoming import Incoming
from tailhold_server.uploads.names import checked_name, shown_name

PATH = "/v1/files"
PURPOSES = ("assistants", "user_data")
_BYTES = "application/octet-stream"
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": list(PURPOSES)},
    },
}
_BODY = {"required": True, "content": {KIND: {"schema": _FORM}}}


def files_router(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter(dependencies=[Depends(uploads_open(service))])

    async def record(request: Request, action: Action, *files: File) -> None:
        await record_files(service, action, "files", caller_of(request.scope), files)

    @router.post(PATH, openapi_extra={"requestBody": _BODY})
    async def upload(request: Request) -> dict[str, Any]:
        """Keep a file. The same name and bytes are the same file, however often it is sent."""
        store = service.handlers.store
        most = store.limits.max_file_mebibytes << 20
        async with store.receiving() as incoming:
            reader = FormReader(request.headers.get("content-type", ""), limited(store, incoming, most))
            form = await reader.read(request.stream())
            purpose = _purpose(form.fields)

            async def kept(name: str, about: About) -> None:
                await record(request, Action.UPLOADED, uploaded(name, about))

            name, about = await store.keep(incoming, checked_name(form.filename or "", "file"), purpose, kept)
        return file_body(name, about)

    @router.get(PATH)
    async def files(
        limit: Annotated[int, Query(ge=1, le=10000)] = 10000,
        order: Order = Order.DESC,
        after: str | None = None,
        purpose: str | None = None,
    ) -> dict[str, Any]:
        """All files that were uploaded, in pages."""
        store = service.handlers.store
        found = await store.files()
        behind = await _place(store, found, after) if after else None
        wanted = [each for each in found.items() if purpose in (None, each[1].purpose)]
        listed, more = page(wanted, lambda each: (each[1].created_at, each[0]), limit=limit, order=order, after=behind)
        return page_body([file_body(*each) for each in listed], more)

    @router.get(PATH + "/{file_id}")
    async def file(file_id: str) -> dict[str, Any]:
        """One of them."""
        return file_body(file_id, await service.handlers.store.file(file_id))

    @router.get(PATH + "/{file_id}/content", response_class=Response, responses={200: {"content": {_BYTES: {}}}})
    async def content(file_id: str, request: Request) -> Response:
        """Its bytes. A browser saves them and runs nothing of them."""
        store = service.handlers.store
        await record(request, Action.READ, uploaded(file_id, await store.file(file_id)))
        return _Bytes(store, *await store.content(file_id))

    @router.delete(PATH + "/{file_id}")
    async def delete(file_id: str, request: Request) -> dict[str, Any]:
        """Delete it, in the vector store too: nothing of it is found from now on."""
        await service.handlers.store.check_there(file_id)
        await record(request, Action.DELETED, *await named(service, [file_id]))
        await service.handlers.store.remove(file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return router


class _Bytes(StreamingResponse):
    """An open file: whatever happens to its name meanwhile, all of it is sent."""

    def __init__(self, store: VectorStore, about: About, file: BinaryIO) -> None:
        name = shown_name(about.filename)
        named = f'filename="{name}"' if quote(name) == name else f"filename*=utf-8''{quote(name)}"
        headers = {
            "content-length": str(about.bytes),
            "content-disposition": f"attachment; {named}",
            "x-content-type-options": "nosniff",
            "content-security-policy": "sandbox",
        }
        super().__init__(store.pieces(file), media_type=_BYTES, headers=headers)
        self._close = partial(store.close, file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Closes the file, also when the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def uploads_open(service: Service) -> Callable[[Request], Awaitable[None]]:
    """For routes about uploads: refused, before anything is read, to callers whose tenant may see none."""

    async def check(request: Request) -> None:
        check_open(service, caller_of(request.scope))

    return check


def check_open(service: Service, caller: Caller) -> None:
    """Raises ServeError where the caller's tenant may see no uploads."""
    if UPLOADS in service.closed_to(caller):
        told = "Uploads are closed to your tenant (`corpus.uploads.tenants`)."
        raise ServeError(Failure.FORBIDDEN, told, code="tenant_forbidden")


def file_body(name: str, about: About) -> dict[str, Any]:
    """A file on the wire."""
    return {
        "id": name,
        "object": "file",
        "bytes": about.bytes,
        "created_at": about.created_at,
        "filename": about.filename,
        "purpose": about.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": None,
    }


def limited(store: VectorStore, incoming: Incoming, most: int) -> Callable[[bytes], Awaitable[None]]:
    """Writes what comes. Raises ServeError where it is too much."""

    async def take(data: bytes) -> None:
        if incoming.bytes + len(data) > most:
            told = f"The file is larger than {most} bytes (`corpus.uploads.maxFileMebibytes`): split it."
            raise ServeError(Failure.TOO_LARGE, told, param="file")
        await store.write(incoming, data)

    return take


async def _place(store: VectorStore, found: Mapping[str, About], cursor: str) -> Place:
    at = found[cursor].created_at if cursor in found else (await store.stood(cursor)).created_at
    return place(at, cursor, "after")


def _purpose(fields: dict[str, str]) -> str:
    for name in fields:
        known = FILES.get(name.partition("[")[0])
        if known is None:
            raise invalid(f"`{name[:100]}` is not a field of this API: leave it out", name[:100], "unknown_parameter")
        if name != "purpose":
            raise invalid(f"`{name[:100]}` is not supported: {known.says}", name[:100], "unsupported_parameter")
    purpose = fields.get("purpose")
    if purpose not in PURPOSES:
        told = f"`purpose` is {f'`{purpose[:100]}`' if purpose else 'missing'}: give one of {', '.join(PURPOSES)}"
        raise invalid(told, "purpose")
    return purpose
