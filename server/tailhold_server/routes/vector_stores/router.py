"""`/v1/vector_stores`: search, and what is in the corpus."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from tailhold_server import recording
from tailhold_server.access.caller import caller_of
from tailhold_server.audit.events import Action
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers.store import VectorStore
from tailhold_server.handlers.stored import FileState, StoredFile
from tailhold_server.routes.files import uploads_open
from tailhold_server.routes.paging import Order, Place, page, page_body, place
from tailhold_server.routes.reading import body_of, json_body, read
from tailhold_server.routes.vector_stores.bodies import batch_body, results_body, store_body, stored_body
from tailhold_server.routes.vector_stores.protocol import AddRequest, BatchRequest, DescribeRequest, SearchRequest
from tailhold_server.service import Service

PATH = "/v1/vector_stores"
STORE = PATH + "/{vector_store_id}"
FILES = STORE + "/files"
_SURFACE = "vector_stores"
"""As audit records name it."""
BATCHES = STORE + "/file_batches"

Limit = Annotated[int, Query(ge=1, le=100)]
Filter = Annotated[FileState | None, Query(alias="filter")]


def vector_stores_router(service: Service) -> APIRouter:
    """The routes over a service."""
    router, uploads = APIRouter(), APIRouter(dependencies=[Depends(uploads_open(service))])
    _search_routes(router, service)
    _file_routes(router, uploads, service)
    _batch_routes(uploads, service)
    router.include_router(uploads)
    return router


def _search_routes(router: APIRouter, service: Service) -> None:
    @router.get(PATH)
    async def stores(request: Request) -> dict[str, Any]:
        """The pipeline's one vector store."""
        return page_body([await _store(service, request)], more=False)

    @router.get(STORE)
    async def store(vector_store_id: str, request: Request) -> dict[str, Any]:
        """The vector store, with how far its files are."""
        _check(service, vector_store_id)
        return await _store(service, request)

    @router.post(STORE + "/search", openapi_extra={"requestBody": json_body(SearchRequest)})
    async def search(vector_store_id: str, request: Request, response: Response) -> dict[str, Any]:
        """The passages that fit best, without an answer."""
        asked = read(SearchRequest, await body_of(request))
        _check(service, vector_store_id)
        request_id, hits = await recording.search(service, asked, caller_of(request.scope), _SURFACE)
        response.headers[recording.REQUEST_HEADER] = request_id
        return results_body(asked.queries, hits)


def _file_routes(router: APIRouter, uploads: APIRouter, service: Service) -> None:
    @uploads.post(FILES, openapi_extra={"requestBody": json_body(AddRequest)})
    async def add(vector_store_id: str, request: Request) -> dict[str, Any]:
        """Make an uploaded file part of the corpus. It is found once an index that holds it is in force."""
        asked = read(AddRequest, await body_of(request))
        _check(service, vector_store_id)
        await service.handlers.store.file(asked.file_id)
        await _record(service, request, Action.ADDED, asked.file_id)
        added = await service.handlers.store.add(asked.file_id, asked.attributes or {})
        return stored_body(vector_store_id, added)

    @router.get(FILES)
    async def files(
        vector_store_id: str,
        request: Request,
        limit: Limit = 20,
        order: Order = Order.DESC,
        after: str | None = None,
        before: str | None = None,
        state: Filter = None,
    ) -> dict[str, Any]:
        """All documents, uploaded or not, in pages."""
        _check(service, vector_store_id)
        stored = await service.handlers.store.all_stored(_closed(service, request))
        window = await _window(service.handlers.store, stored, after, before)
        return _listed(vector_store_id, stored, state, limit=limit, order=order, **window)

    @router.get(FILES + "/{file_id}")
    async def file(vector_store_id: str, file_id: str, request: Request) -> dict[str, Any]:
        """How far a document is."""
        _check(service, vector_store_id)
        return stored_body(vector_store_id, await service.handlers.store.stored(file_id, _closed(service, request)))

    @uploads.post(FILES + "/{file_id}", openapi_extra={"requestBody": json_body(DescribeRequest)})
    async def describe(vector_store_id: str, file_id: str, request: Request) -> dict[str, Any]:
        """Give an uploaded file other attributes."""
        asked = read(DescribeRequest, await body_of(request))
        _check(service, vector_store_id)
        described = await service.handlers.store.describe(file_id, asked.attributes or {})
        await _record(service, request, Action.ADDED, file_id)
        return stored_body(vector_store_id, described)

    @router.get(FILES + "/{file_id}/content")
    async def content(vector_store_id: str, file_id: str, request: Request) -> dict[str, Any]:
        """What was read from a document, passage by passage."""
        _check(service, vector_store_id)
        texts = await service.handlers.store.texts(file_id, _closed(service, request))
        await _record(service, request, Action.READ, file_id)
        data = [{"type": "text", "text": text} for text in texts]
        return {"object": "vector_store.file_content.page", "data": data, "has_more": False, "next_page": None}

    @uploads.delete(FILES + "/{file_id}")
    async def take_out(vector_store_id: str, file_id: str, request: Request) -> dict[str, Any]:
        """Take a file out of the corpus: nothing of it is found from now on, whatever index is in force."""
        _check(service, vector_store_id)
        await service.handlers.store.take_out(file_id, _closed(service, request))
        await _record(service, request, Action.TAKEN_OUT, file_id)
        return {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}


def _batch_routes(router: APIRouter, service: Service) -> None:
    @router.post(BATCHES, openapi_extra={"requestBody": json_body(BatchRequest)})
    async def add_batch(vector_store_id: str, request: Request) -> dict[str, Any]:
        """Make several uploaded files part of the corpus: all or, where one is not known, none."""
        asked = read(BatchRequest, await body_of(request))
        _check(service, vector_store_id)
        name, added = await service.handlers.store.add_batch(asked.entries)
        await _record(service, request, Action.ADDED, *added.file_ids)
        return batch_body(vector_store_id, name, *await service.handlers.store.batch(name))

    @router.get(BATCHES + "/{batch_id}")
    async def batch(vector_store_id: str, batch_id: str) -> dict[str, Any]:
        """How far its files are."""
        _check(service, vector_store_id)
        return batch_body(vector_store_id, batch_id, *await service.handlers.store.batch(batch_id))

    @router.post(BATCHES + "/{batch_id}/cancel")
    async def cancel(vector_store_id: str, batch_id: str, request: Request) -> dict[str, Any]:
        """Take out what of it is not indexed yet."""
        _check(service, vector_store_id)
        cancelled = await service.handlers.store.cancel(batch_id)
        await _record(service, request, Action.TAKEN_OUT, *cancelled[0].cancelled)
        return batch_body(vector_store_id, batch_id, *cancelled)

    @router.get(BATCHES + "/{batch_id}/files")
    async def batch_files(
        vector_store_id: str,
        batch_id: str,
        limit: Limit = 20,
        order: Order = Order.DESC,
        after: str | None = None,
        before: str | None = None,
        state: Filter = None,
    ) -> dict[str, Any]:
        """Its files, in pages."""
        _check(service, vector_store_id)
        _, files = await service.handlers.store.batch(batch_id)
        window = await _window(service.handlers.store, files, after, before)
        return _listed(vector_store_id, files, state, limit=limit, order=order, **window)


async def _window(
    store: VectorStore, files: Sequence[StoredFile], after: str | None, before: str | None
) -> dict[str, Place]:
    """Where the cursors stand, or stood, whatever state their files are in now. Raises ServeError."""
    times = {each.file_id: each.created_at for each in files} if after or before else {}
    found = {}
    for param, cursor in (("after", after), ("before", before)):
        if cursor:
            at = times[cursor] if cursor in times else (await store.stood(cursor)).added_at
            found[param] = place(at, cursor, param)
    return found


def _listed(store: str, files: Sequence[StoredFile], state: FileState | None, **window: Any) -> dict[str, Any]:
    wanted = [each for each in files if state in (None, each.state)]
    listed, more = page(wanted, lambda each: (each.created_at, each.file_id), **window)
    return page_body([stored_body(store, each) for each in listed], more)


def _closed(service: Service, request: Request) -> frozenset[str]:
    return service.closed_to(caller_of(request.scope))


async def _record(service: Service, request: Request, action: Action, *names: str) -> None:
    files = await recording.named(service, names)
    await recording.record_files(service, action, _SURFACE, caller_of(request.scope), files)


async def _store(service: Service, request: Request) -> dict[str, Any]:
    counts, size = await service.handlers.store.counts(_closed(service, request))
    return store_body(service.vector_store_id, service.pod.pipeline, Counter(counts), size)


def _check(service: Service, name: str) -> None:
    if name != service.vector_store_id:
        told = f"The vector store `{name[:100]}` does not exist; there is `{service.vector_store_id}`."
        raise ServeError(Failure.NOT_FOUND, told, param="vector_store_id")
