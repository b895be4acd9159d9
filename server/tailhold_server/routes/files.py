"""`/v1/files`: documents that clients upload."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import FileResponse, Response

from tailhold_api.sources import UPLOADS
from tailhold_server.access.caller import Caller, caller_of
from tailhold_server.audit.events import Action
from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.recording import record_files, uploaded
from tailhold_server.routes.fields import FILES
from tailhold_server.routes.multipart import KIND, FormReader
from tailhold_server.routes.paging import Order, page, page_body
from tailhold_server.service import Service
from tailhold_server.uploads.folder import About, Incoming, shown_name

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

    async def record(request: Request, action: Action, name: str, about: About) -> None:
        await record_files(service, action, "files", caller_of(request.scope), [uploaded(name, about)])

    @router.post(PATH, openapi_extra={"requestBody": _BODY})
    async def upload(request: Request) -> dict[str, Any]:
        """Keep a file. The same name and bytes are the same file, however often it is sent."""
        store = service.handlers.store
        most = store.limits.max_file_mebibytes << 20
        incoming = await store.receive()
        try:
            reader = FormReader(request.headers.get("content-type", ""), limited(incoming, most))
            form = await reader.read(request.stream())
            purpose = _purpose(form.fields)
            if not form.filename:
                raise invalid("`file` is missing, or has no name", "file")
            name, about = await store.keep(incoming, form.filename, purpose)
        finally:
            incoming.abandon()
        await record(request, Action.UPLOADED, name, about)
        return file_body(name, about)

    @router.get(PATH)
    async def files(
        limit: Annotated[int, Query(ge=1, le=10000)] = 10000,
        order: Order = Order.DESC,
        after: str | None = None,
        purpose: str | None = None,
    ) -> dict[str, Any]:
        """All files that were uploaded, in pages."""
        found = await service.handlers.store.files()
        wanted = [each for each in found.items() if purpose in (None, each[1].purpose)]
        listed, more = page(wanted, lambda each: (each[1].created_at, each[0]), limit=limit, order=order, after=after)
        return page_body([file_body(*each) for each in listed], more)

    @router.get(PATH + "/{file_id}")
    async def file(file_id: str) -> dict[str, Any]:
        """One of them."""
        return file_body(file_id, await service.handlers.store.file(file_id))

    @router.get(PATH + "/{file_id}/content", response_class=Response, responses={200: {"content": {_BYTES: {}}}})
    async def content(file_id: str, request: Request) -> Response:
        """Its bytes. A browser saves them and runs nothing of them."""
        store = service.handlers.store
        about = await store.file(file_id)
        path = await store.content(file_id)
        await record(request, Action.READ, file_id, about)
        headers = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
        return FileResponse(path, media_type=_BYTES, filename=shown_name(about.filename), headers=headers)

    @router.delete(PATH + "/{file_id}")
    async def delete(file_id: str, request: Request) -> dict[str, Any]:
        """Delete it, in the vector store too: nothing of it is found from now on."""
        await record(request, Action.DELETED, file_id, await service.handlers.store.file(file_id))
        await service.handlers.store.remove(file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return router


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


def limited(incoming: Incoming, most: int) -> Callable[[bytes], None]:
    """Writes what comes. Raises ServeError where it is too much."""

    def take(data: bytes) -> None:
        if incoming.bytes + len(data) > most:
            told = f"The file is larger than {most} bytes (`corpus.uploads.maxFileMebibytes`): split it."
            raise ServeError(Failure.TOO_LARGE, told, param="file")
        incoming.write(data)

    return take


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
