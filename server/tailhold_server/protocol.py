"""What is hardly HTTP is answered in OpenAI's envelope too, and a head has a limit."""

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailhold_server.errors import Failure, ServeError
from tailhold_server.routes.envelope import envelope

HEAD_BYTES = 64 * 1024
"""Address and headers of one request: proxies in front allow less."""
_REASONS = {Failure.INVALID: b"Bad Request", Failure.HEAD_TOO_LARGE: b"Request Header Fields Too Large"}


class _HeadTooLargeError(Exception):
    """Ends the parser; what is answered is decided where its error arrives."""


class Protocol(HttpToolsProtocol):
    """uvicorn's own, but for these two."""

    _head_bytes = _unfinished = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """A header that never ends reaches no callback: its bytes are counted as they come."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head and not self.transport.is_closing():
            self._unfinished += len(data)
            if self._unfinished > HEAD_BYTES:
                self._refuse(_too_large())

    def on_message_begin(self) -> None:
        """Another request of the connection."""
        self._head_bytes = self._unfinished = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """What the parser cannot read, or was told not to go on with."""
        large = self._head_bytes > HEAD_BYTES
        self._refuse(_too_large() if large else ServeError(Failure.INVALID, msg))

    def _count(self, size: int) -> None:
        self._head_bytes += size + 4
        if self._head_bytes > HEAD_BYTES:
            raise _HeadTooLargeError

    def _refuse(self, error: ServeError) -> None:
        body = orjson.dumps(envelope(error))
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % (error.failure.status, _REASONS[error.failure], len(body))
        )
        self.transport.write(head + body)
        self.transport.close()


def _too_large() -> ServeError:
    return ServeError(Failure.HEAD_TOO_LARGE, f"Address and headers of a request may have {HEAD_BYTES} bytes.")
