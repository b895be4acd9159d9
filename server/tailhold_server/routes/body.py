"""The limits on a request's body, before anybody reads it."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailhold_server.errors import Failure, ServeError
from tailhold_server.patience import LEAST_BYTES_PER_SECOND, Patience
from tailhold_server.routes.envelope import error_response


class BodyLimit:
    """Refuses with 413 what says that it is too large, and what turns out to be; with 408 what does not come.

    `larger` limits hold for paths of their own. Only the time counts in which the server waits for the client.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, receive_seconds: float, larger: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._receive_seconds = receive_seconds
        self._larger = larger or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only requests with a body are looked at."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._larger.get(scope["path"], self._max_bytes)
        if _declared_bytes(scope) > most:
            await error_response(_too_large(most))(scope, receive, send)
            return
        await self._app(scope, self._limited(receive, most), send)

    def _limited(self, receive: Receive, most: int) -> Receive:
        seen, more, patience = 0, True, Patience(self._receive_seconds)

        async def limited() -> Message:
            nonlocal seen, more
            if not more:  # the client's leave, or the rest of what is refused
                return await receive()
            message = await self._timely(receive, patience)
            size = len(message.get("body", b""))
            patience.came(size)
            seen += size
            more = message.get("more_body", False) and seen <= most
            if seen > most:
                raise _too_large(most)
            return message

        return limited

    async def _timely(self, receive: Receive, patience: Patience) -> Message:
        try:
            return await patience.wait(receive())
        except TimeoutError:
            raise self._too_slow() from None

    def _too_slow(self) -> ServeError:
        return ServeError(
            Failure.TOO_SLOW,
            f"Nothing more of the request came for {self._receive_seconds:g} s, or less than {LEAST_BYTES_PER_SECOND} "
            "bytes a second. Send it again.",
        )


def _too_large(most: int) -> ServeError:
    return ServeError(Failure.TOO_LARGE, f"The request is larger than {most} bytes.")


def _declared_bytes(scope: Scope) -> int:
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(values[0]) if values and values[0].isdigit() else 0
