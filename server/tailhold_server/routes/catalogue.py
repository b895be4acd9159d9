"""`GET /v1/models` and `GET /v1/chunks/{key}`."""

import asyncio
import re
from typing import Any

from fastapi import APIRouter, Request

from tailhold_server.access.caller import caller_of
from tailhold_server.content import Index
from tailhold_server.errors import Failure, ServeError
from tailhold_server.ports import ChunkSource
from tailhold_server.service import Service
from tailhold_server.sources import CHUNK_PATH

_KEY = re.compile(r"[0-9a-f]{64}")


def catalogue_router(service: Service) -> APIRouter:
    """The routes over a service."""
    router = APIRouter()

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The names that `model` may have; all of them are one pipeline."""
        return {"object": "list", "data": [service.model_body(name) for name in service.model_names]}

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One of them."""
        service.check_model(name)
        return service.model_body(name)

    @router.get(CHUNK_PATH + "/{key}")
    async def chunk(key: str, request: Request) -> dict[str, Any]:
        """A passage that an answer cited; one that is closed to the caller's tenant is as good as none."""
        content = service.contents.current
        found = await asyncio.to_thread(content.index.find, key) if _KEY.fullmatch(key) else None
        if found is None or found[1].source in content.part.closed_to(caller_of(request.scope).tenant):
            raise ServeError(Failure.NOT_FOUND, "No such passage in the index that serves now.", param="key")
        return _chunk_body(content.index, *found)

    return router


def _chunk_body(index: Index, chunk: int, source: ChunkSource) -> dict[str, Any]:
    return {
        "object": "chunk",
        "key": source.key,
        "document": source.document,
        "title": source.title,
        "url": source.url,
        "source": source.source,
        "start": source.start,
        "end": source.end,
        "text": index.chunks.text(chunk),
    }
