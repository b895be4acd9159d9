"""`GET /v1/models`, and the server's own copy of what an answer cited."""

import asyncio
import re
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tailhold_server.access.caller import caller_of
from tailhold_server.audit.events import Action, File
from tailhold_server.content import Index
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers.documents import file_id
from tailhold_server.ports import ChunkSource, Document
from tailhold_server.recording import record_files
from tailhold_server.service import Service
from tailhold_server.sources import SOURCE_PATH

_KEY = re.compile(r"[0-9a-f]{64}")
_HTML = "text/html"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><h1>{title}</h1><p>{where}</p><blockquote style="white-space: pre-wrap">{text}</blockquote></body></html>
"""
_SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
}


def catalogue_router(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The names that `model` may have: those of the pipeline, which are one, and the embedder's."""
        names = (*service.model_names, service.embedder_name)
        return {"object": "list", "data": [service.model_body(name) for name in names]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One of them."""
        service.check_embedder(name)
        return service.model_body(name)

    @router.get(
        SOURCE_PATH + "/{key}",
        response_model=None,
        responses={200: {"content": {"application/json": {"schema": {"type": "object"}}, _HTML: {}}}},
    )
    async def source(key: str, request: Request) -> Response:
        """A passage that an answer cited: JSON, or a page for browsers. One of a closed source is as good as none."""
        index, closed = service.contents.current.index, service.closed_to(caller_of(request.scope))
        found = await asyncio.to_thread(index.find, key) if _KEY.fullmatch(key) else None
        mask = await service.handlers.store.visible.mask(index)
        if found is None or found[1].source in closed or not (mask is None or mask[found[0]]):
            raise ServeError(Failure.NOT_FOUND, "No such passage in the index that serves now.", param="key")
        told = File(file_id(Document(found[1].source, found[1].document, "", None)), chunk=key)
        await record_files(service, Action.READ, "sources", caller_of(request.scope), [told])
        body = _body(index, *found)
        headers = {"vary": "accept"}
        if _prefers_html(request.headers.get("accept", "")):
            return HTMLResponse(_page(body), headers=headers | _SAFE)
        return JSONResponse(body, headers=headers)

    return router


def _body(index: Index, chunk: int, source: ChunkSource) -> dict[str, Any]:
    return {
        "object": "source",
        "key": source.key,
        "document": source.document,
        "title": source.title,
        "url": source.url,
        "source": source.source,
        "start": source.start,
        "end": source.end,
        "text": index.chunks.text(chunk),
    }


def _page(body: dict[str, Any]) -> str:
    where = f"{body['source']}: {body['document']}, characters {body['start']} to {body['end']}"
    return _PAGE.format(title=escape(body["title"]), where=escape(where), text=escape(body["text"]))


def _prefers_html(accept: str) -> bool:
    """Browsers name it and no JSON; programs that take anything get JSON."""
    kinds = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    return _HTML in kinds and "application/json" not in kinds
