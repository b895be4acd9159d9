"""A server whose latencies are known, for tests and benches of the generator: `python -m tailhold_bench.load.stand_in`.

One queue, one server, the same service time for each: with Poisson arrivals an M/D/1 queue. It speaks just enough HTTP.
"""

import argparse
import asyncio
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import httptools
import orjson

from tailhold_bench.load.waiting import punctual_loop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Behaviour:
    """What the server does. May be changed while it runs."""

    service_seconds: float = 0.0
    """Of each request, one after the other; 0 answers at once, all together."""
    tokens: int = 1
    token_seconds: float = 0.0
    """Between tokens, after the service."""
    stall_at: float | None = None
    """Seconds after the first request at which everything stands still for `stall_seconds`."""
    stall_seconds: float = 1.0
    status: int = 200
    die_after: int | None = None
    """Requests after which it closes everything, the last one amid its answer."""
    cut: bool = False
    """Ends streams before their end."""
    hang: bool = False
    """Never answers."""


class StandIn:
    """The server; `await start()` gives its URL."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.requests = 0
        self.bodies: list[bytes] = []
        """The newest ones, at most a thousand."""
        self._free_at = 0.0
        self._first: float | None = None
        self._server: asyncio.Server | None = None
        self.transports: set[asyncio.Transport] = set()

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> str:
        """Listen on loopback."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=4096, ssl=tls)
        return f"http{'s' * bool(tls)}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def stop(self) -> None:
        """Close all, in mid-answer."""
        if self._server:
            self._server.close()
        for transport in list(self.transports):
            transport.abort()

    def turn(self, now: float) -> float:
        """When a request that comes now is served: after those before it."""
        self._first = now if self._first is None else self._first
        self._free_at = self._past_stall(max(now, self._free_at)) + self.behaviour.service_seconds
        return self._free_at

    def _past_stall(self, at: float) -> float:
        stall = self.behaviour.stall_at
        if stall is None or self._first is None:
            return at
        began = self._first + stall
        return began + self.behaviour.stall_seconds if began <= at < began + self.behaviour.stall_seconds else at


class _Connection(asyncio.Protocol):
    def __init__(self, server: StandIn) -> None:
        self._server = server
        self._body = b""
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  what create_server makes
        self._transport = transport
        self._server.transports.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.transports.discard(self._transport)
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        server, behaviour = self._server, self._server.behaviour
        server.requests += 1
        if len(server.bodies) < 1000:
            server.bodies.append(body)
        loop = asyncio.get_running_loop()
        at_once = not (behaviour.service_seconds or behaviour.token_seconds or behaviour.stall_at or behaviour.hang)
        if behaviour.status != 200:
            self._refuse(behaviour.status)
        elif at_once and not behaviour.cut and behaviour.die_after is None:
            self._transport.write(_HEAD + b"".join(_events(behaviour.tokens, 0.0)) + b"0\r\n\r\n")
        else:
            self._task = loop.create_task(self._answer(server.turn(loop.time())))

    def _refuse(self, status: int) -> None:
        body = orjson.dumps({"error": {"message": "the stand-in refuses", "type": "stand_in"}})
        self._transport.write(b"HTTP/1.1 %d No\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body))

    async def _answer(self, ready: float) -> None:
        loop, behaviour = asyncio.get_running_loop(), self._server.behaviour
        if behaviour.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(max(0.0, ready - loop.time()))
        self._transport.write(_HEAD)
        events = _events(behaviour.tokens, 1000 * behaviour.service_seconds)
        for place, event in enumerate(events):
            if place and behaviour.token_seconds:
                await asyncio.sleep(behaviour.token_seconds)
            if place == len(events) - 1 and self._dies():
                self._server.stop()
                return
            if place == len(events) - 1 and behaviour.cut:
                self._transport.close()
                return
            self._transport.write(event)
        self._transport.write(b"0\r\n\r\n")

    def _dies(self) -> bool:
        limit = self._server.behaviour.die_after
        return limit is not None and self._server.requests >= limit


def _events(tokens: int, milliseconds: float) -> list[bytes]:
    texts = [_event({"choices": [_choice({"role": "assistant", "content": "word "}, None)]}) for _ in range(tokens)]
    ending = {
        "choices": [_choice({}, "stop")],
        "usage": {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens},
        "tailhold": {"stages": {"serve": milliseconds, "total": milliseconds}},
    }
    return [*texts, _event(ending) + _chunk(b"data: [DONE]\n\n")]


def _choice(delta: dict[str, str], reason: str | None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _event(body: Mapping[str, object]) -> bytes:
    told = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "stand-in", **body}
    return _chunk(b"data: " + orjson.dumps(told) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def _serve(behaviour: Behaviour, port: int) -> None:
    print(await StandIn(behaviour).start(port), flush=True)
    await asyncio.Event().wait()


def main() -> int:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--service-ms", type=float, default=0.0, help="of each request, one after the other")
    parser.add_argument("--tokens", type=int, default=1)
    args = parser.parse_args()
    with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=punctual_loop) as runner:
        runner.run(_serve(Behaviour(service_seconds=args.service_ms / 1000, tokens=args.tokens), args.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
