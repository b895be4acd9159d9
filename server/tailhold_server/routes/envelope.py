"""One shape for all errors: OpenAI's."""

import asyncio
import logging
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from tailhold_server.errors import Failure, ServeError

_LOG = logging.getLogger(__name__)

_CLIENT_LEFT = 499
"""Read by nobody: the client has left."""
_UNREAD = (Failure.TOO_SLOW, Failure.TOO_LARGE)
"""The rest of the body is not waited for: no further request can follow it on the connection."""
_LINGER_SECONDS = 1.0
_BY_STATUS = {failure.status: failure for failure in Failure}


def envelope(error: ServeError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`."""
    said = {"message": error.message, "type": error.failure.kind, "param": error.param, "code": error.code}
    return {"error": said}


def error_response(error: ServeError) -> JSONResponse:
    """The envelope with its status."""
    wait = error.retry_after_seconds
    headers = dict(error.headers) | ({"retry-after": str(wait)} if wait is not None else {})
    if error.failure in _UNREAD:
        headers["connection"] = "close"
    kind = _LingeringResponse if error.failure is Failure.TOO_LARGE else JSONResponse
    return kind(envelope(error), error.failure.status, headers)


def _methods(app: FastAPI, request: Request) -> set[str]:
    found = (route for route in app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return {method for route in found for method in getattr(route, "methods", None) or ()}


class _LingeringResponse(JSONResponse):
    """Reads on for a moment before it ends: a client that goes on sending to a closed connection sees no answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole answer is sent at once."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while (await receive()).get("more_body"):
                    pass
        await send({"type": "http.response.body"})


def install(app: FastAPI) -> None:
    """Give every error of the app this shape, also those of routes that are not there and of our own bugs."""

    @app.exception_handler(ServeError)
    async def ours(_: Request, error: ServeError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=_CLIENT_LEFT)

    @app.exception_handler(HTTPException)
    async def routing(request: Request, error: HTTPException) -> JSONResponse:
        failure = _BY_STATUS.get(error.status_code, Failure.INVALID)
        phrase = HTTPStatus(error.status_code).phrase
        response = error_response(ServeError(failure, f"{phrase}: {request.method} {request.url.path}"))
        response.headers.update(error.headers or {})
        if failure is Failure.METHOD:  # several routes of one path: the router names the methods of the first alone
            response.headers["allow"] = ", ".join(sorted(_methods(app, request)))
        return response

    @app.exception_handler(RequestValidationError)
    async def parameters(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        param = str(first["loc"][-1])
        return error_response(ServeError(Failure.INVALID, f"`{param}`: {first['msg']}", param=param))

    @app.exception_handler(Exception)
    async def bugs(_: Request, error: Exception) -> JSONResponse:
        _LOG.error("a request failed: %s", type(error).__name__)
        return error_response(ServeError(Failure.INTERNAL, "The server made a mistake; its log says more."))
