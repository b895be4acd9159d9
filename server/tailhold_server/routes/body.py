"""The limit on a request's body, before anybody reads it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailhold_server.errors import Failure, ServeError
from tailhold_server.routes.envelope import error_response


class BodyLimit:
    """Refuses with 413 what says that it is too large, and what turns out to be."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only requests with a body are looked at."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared_bytes(scope) > self._max_bytes:
            await error_response(self._refusal())(scope, receive, send)
            return
        await self._app(scope, self._counting(receive), send)

    def _counting(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise self._refusal()
            return message

        return counted

    def _refusal(self) -> ServeError:
        return ServeError(Failure.TOO_LARGE, f"The request is larger than {self._max_bytes} bytes.")


def _declared_bytes(scope: Scope) -> int:
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() else 0
