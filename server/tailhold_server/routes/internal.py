"""Probes, metrics, what is in force, and new content."""

import asyncio
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel, ValidationError
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tailhold_api.codec import load
from tailhold_api.conditions import Reason
from tailhold_api.handover import Handover
from tailhold_api.parts import ContentPart
from tailhold_api.rollout import Probe
from tailhold_api.slo import Objectives
from tailhold_server.authority import Authority, NotAllowedError
from tailhold_server.errors import ContentRefusedError, invalid
from tailhold_server.health import Verdict
from tailhold_server.service import Service

CONTENT_PATH = "/internal/content"
_LOOK_SECONDS = 2.0
"""Who asks what is in force waits no longer for the uploads: the operator gives up soon after."""
OBJECTIVES_PATH = "/internal/objectives"
HANDOVER_PATH = "/internal/handover"
PROBE_PATH = "/internal/probe"
M = TypeVar("M", bound=BaseModel)


def internal_router(service: Service, authority: Authority) -> APIRouter:
    """The routes over a service."""
    router = APIRouter()
    one_at_a_time = asyncio.Lock()

    @router.get("/startupz")
    async def startupz() -> Response:
        """200 once the start is over; names the phase."""
        return _probe(service.is_started(), service)

    @router.get("/readyz")
    async def readyz() -> Response:
        """200 while questions are answered."""
        return _probe(service.is_ready(), service)

    @router.get("/livez")
    async def livez() -> Response:
        """503 when only a restart helps."""
        return _probe(service.is_alive(), service)

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus' text format."""
        return PlainTextResponse(service.metrics_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @router.get("/v1/tuning")
    async def tuning() -> dict[str, Any]:
        """The digests and settings in force."""
        await service.look(_LOOK_SECONDS)
        return service.tuning()

    @router.put(CONTENT_PATH)
    async def content(request: Request) -> Response:
        """Take new content; what was in force stays when it is refused."""
        denied = _denied(authority, request.headers.get("authorization", ""))
        if denied is not None:
            return denied
        part = _read(ContentPart, await request.body())
        async with one_at_a_time:
            return await _replace(service, part)

    @router.put(OBJECTIVES_PATH)
    async def objectives(request: Request) -> Response:
        """Count these from now on."""
        denied = _denied(authority, request.headers.get("authorization", ""))
        if denied is not None:
            return denied
        asked = _read(Objectives, await request.body())
        service.objectives.keep(asked.objectives)
        return JSONResponse(asked.model_dump(mode="json", by_alias=True))

    @router.put(HANDOVER_PATH)
    async def handover(request: Request) -> Response:
        """Hand this share over, for the next seconds."""
        denied = _denied(authority, request.headers.get("authorization", ""))
        if denied is not None:
            return denied
        service.hand_over(_read(Handover, await request.body()))
        return JSONResponse({"handover": service.handovers.body()})

    @router.post(PROBE_PATH)
    async def probe(request: Request) -> Response:
        """Ask ourselves, and tell what came of it. One probe at a time; new content waits for it."""
        denied = _denied(authority, request.headers.get("authorization", ""))
        if denied is not None:
            return denied
        asked = _read(Probe, await request.body())
        async with one_at_a_time:
            found = await service.probe(asked)
        return JSONResponse(found.model_dump(mode="json", by_alias=True))

    return router


def _probe(verdict: Verdict, service: Service) -> Response:
    body = {"ok": verdict.ok, "reason": verdict.reason, "phase": service.phase.value, "error": service.error}
    body["progress"] = service.progress_body()
    return JSONResponse(body, 200 if verdict.ok else 503)


def _denied(authority: Authority, authorization: str) -> Response | None:
    if not authority.is_on:
        return _refusal(403, "no operator's key is given: content is taken from the file alone", "Forbidden")
    try:
        authority.check(authorization)
    except NotAllowedError as error:
        return _refusal(401, str(error), "Unauthorized")
    return None


def _read(model: type[M], body: bytes) -> M:
    try:
        return load(model, body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise invalid(
            f"{where}: {first['msg']}" if where else first["msg"], code=Reason.CONTENT_REFUSED.value
        ) from None


async def _replace(service: Service, part: ContentPart) -> Response:
    try:
        loaded = await asyncio.to_thread(service.contents.load, part)
    except ContentRefusedError as error:
        return _refusal(422, str(error), Reason.CONTENT_REFUSED.value)
    service.put_content(loaded)
    return JSONResponse({"contentDigest": loaded.digest, "snapshot": loaded.index.snapshot})


def _refusal(status: int, message: str, code: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status)
