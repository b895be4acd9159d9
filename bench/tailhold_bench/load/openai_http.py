"""The OpenAI surface over HTTP/1.1, as lean as asyncio allows: a protocol for each connection, parsed by httptools."""

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httptools
import orjson

from tailhold_bench.load.addresses import Endpoint
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.stream import StreamReader, message_of
from tailhold_bench.load.target import Clock

IDLE_SECONDS = 4.0
"""A connection idle for longer is not used again: uvicorn closes after 5 s, and a close in mid-request is no fault."""
_MOST_ERROR_BYTES = 10_000


@dataclass(frozen=True)
class HttpSettings:
    """How to talk to a server."""

    endpoint: Endpoint
    model: str | None = None
    api_key: str | None = None
    ca_file: str | None = None
    temperature: float = 0.0
    with_usage: bool = True
    """Whether to ask for token counts."""

    def open(self) -> "HttpTarget":
        """A target, in the process that uses it."""
        return HttpTarget(self)


class HttpTarget:
    """Keeps connections alive and opens as many as are needed, as a fleet of clients would."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._idle: list[_Connection] = []
        self._head = _head(settings)
        self._tls = _tls(settings)

    async def ask(self, asked: Asked, sample: Sample, clock: Clock) -> None:
        """One POST of a streamed chat completion."""
        sample.begun = clock()
        connection = self._kept(sample.begun)
        try:
            if connection is None:
                connection = await self._connect()
            await connection.exchange(self._head, self._body(asked), _Reply(sample, clock))
        except OSError as error:
            sample.fail(Outcome.ERROR, f"no connection: {_why(error)}")
        finally:
            sample.ended = clock()
            if connection is not None and connection.is_reusable:
                connection.idle_since = sample.ended
                self._idle.append(connection)
            elif connection is not None:
                connection.close()

    async def close(self) -> None:
        """End all connections that are idle; those at work end with their request."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _kept(self, now: float) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and now - connection.idle_since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> "_Connection":
        where = self._settings.endpoint
        name = where.host if self._tls else None
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(
            _Connection, where.address, where.port, ssl=self._tls, server_hostname=name
        )
        return protocol

    def _body(self, asked: Asked) -> bytes:
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": asked.question}],
            "stream": True,
            "max_tokens": asked.max_tokens,
            "temperature": self._settings.temperature,
        }
        if self._settings.model:
            body["model"] = self._settings.model
        if self._settings.with_usage:
            body["stream_options"] = {"include_usage": True}
        return orjson.dumps(body)


class _Reply:
    """What httptools finds in the bytes of one response."""

    def __init__(self, sample: Sample, clock: Clock) -> None:
        self.sample = sample
        self.clock = clock
        self.status = 0
        self.is_complete = False
        self.is_broken = False
        self.now = 0.0
        self.parser = httptools.HttpResponseParser(self)
        self._stream = StreamReader(sample)
        self._error = b""

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status == 200:
            self._stream.feed(body, self.now)
        elif len(self._error) < _MOST_ERROR_BYTES:
            self._error += body

    def on_message_complete(self) -> None:
        self.is_complete = True

    def feed(self, data: bytes) -> None:
        """The next bytes of the connection."""
        self.now = self.clock()
        if self.sample.first_byte is None:
            self.sample.first_byte = self.now
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.is_broken = True
            self.sample.fail(Outcome.ERROR, f"no HTTP: {error}")

    def end(self) -> None:
        """The response is whole, or its connection has ended."""
        if self.is_broken:
            return
        if self.status == 200:
            self._stream.end()
        elif self.status == 0:
            self.sample.fail(Outcome.CUT, "the connection ended before an answer")
        else:
            outcome = Outcome.SHED if self.status == 429 else Outcome.ERROR
            self.sample.fail(outcome, f"{self.status}: {_message(self._error)}")


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._reply: _Reply | None = None
        self._done: asyncio.Future[None] | None = None
        self._is_open = False

    @property
    def is_reusable(self) -> bool:
        """Whether another request can go over it."""
        return self._is_open and self._done is None and self._transport is not None

    async def exchange(self, head: bytes, body: bytes, reply: _Reply) -> None:
        """Send a request and fill the reply, until it is whole or the connection ends."""
        if self._transport is None or not self._is_open:
            raise ConnectionResetError("closed before it was used")
        self._reply = reply
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
        await self._done
        self._done = self._reply = None
        reply.end()

    def close(self) -> None:
        """At once."""
        self._is_open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what create_connection makes
        self._transport = transport
        self._is_open = True

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            self.close()
            return
        self._reply.feed(data)
        if self._reply.is_broken:
            self.close()
        elif self._reply.is_complete:
            self._is_open = self._is_open and self._reply.parser.should_keep_alive()
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


def _head(settings: HttpSettings) -> bytes:
    headers: Mapping[str, str] = {
        "Host": settings.endpoint.host_header,
        "User-Agent": "tailhold-load",
        "Accept": "text/event-stream",
        "Content-Type": "application/json",
        **({"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {settings.endpoint.path}/chat/completions HTTP/1.1\r\n{lines}Content-Length: ".encode()


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    return ssl.create_default_context(cafile=settings.ca_file) if settings.endpoint.is_tls else None


def _why(error: OSError) -> str:
    if error.errno and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _message(body: bytes) -> str:
    try:
        return message_of(orjson.loads(body))
    except ValueError:
        return body.decode(errors="replace").strip()
