"""Clients that mean no good, or know no better: what they do to a server's socket."""

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import orjson
import psutil
from program_process import ServerProcess
from rag_server import body

_PATH = b"/v1/chat/completions"
_AT_ONCE = 64
_LINGER_OFF = struct.pack("ii", 1, 0)
"""Close with a reset."""


def question(**fields: object) -> bytes:
    """A whole request."""
    text = orjson.dumps(body(**fields))
    return b"POST %s HTTP/1.1\r\nhost: docs\r\ncontent-length: %d\r\n\r\n" % (_PATH, len(text)) + text


def odd(seed: int) -> bytes:
    """A request with something wrong in it: in the line, the headers, Host among them, or the body."""
    dice = random.Random(seed)  # noqa: S311 - to be repeated by its seed
    whole = question()
    kind = dice.randrange(7)
    if kind == 0:
        return dice.randbytes(dice.randrange(1, 4000)) + b"\r\n\r\n"
    if kind == 1:
        return b"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-length: 2\r\n\r\n{}" % (_PATH, dice.choice(_HOSTS))
    if kind == 2:
        name, value = dice.choice(_HEADERS)
        return whole.replace(b"\r\n\r\n", b"\r\n%s: %s\r\n\r\n" % (name, value), 1)
    if kind == 3:
        text = dice.choice(_BODIES)
        return b"POST %s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (_PATH, len(text)) + text
    if kind == 4:
        return whole[: dice.randrange(1, len(whole))]
    if kind == 5:
        target = dice.choice(_TARGETS)
        return b"%s %s HTTP/1.1\r\nhost: a\r\n\r\n" % (dice.choice(_METHODS), target)
    flipped = bytearray(whole)
    for _ in range(dice.randrange(1, 8)):
        flipped[dice.randrange(len(flipped))] = dice.randrange(256)
    return bytes(flipped)


_HOSTS = (
    b"",
    b"a b",
    b"\xff\xfe",
    b"[::1",
    b"x" * 5000,
    b"a:99999",
    b"../../etc",
    b"%00",
    b"a\tb",
    b"evil.example@docs",
)
_HEADERS = (
    (b"content-length", b"-1"),
    (b"content-length", b"99999999999999999999"),
    (b"transfer-encoding", b"chunked"),
    (b"transfer-encoding", b"gzip, chunked"),
    (b"expect", b"100-continue"),
    (b"content-encoding", b"br"),
    (b"authorization", b"Bearer \xf0\x9f\x92\xa9"),
    (b"x-" + b"h" * 60_000, b"1"),
    (b"cookie", b"c" * 70_000),
    (b"traceparent", b"00-" + b"g" * 50),
    (b"upgrade", b"websocket"),
    (b"connection", b"upgrade, close, keep-alive"),
)
_BODIES = (
    b"",
    b"{",
    b"null",
    b"[" * 50_000,
    b'{"messages":' * 2000,
    b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"messages": [{"role": "user", "content": "\xff"}]}',
    b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
    b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1e400}',
    b'{"messages": [{"role": "user", "content": "a"}], "seed": 99999999999999999999999}',
    b'{"messages": [{"role": "user", "content": "a\\u0000b"}]}',
    b'{"messages": {"role": "user"}, "messages": 1}',
)
_TARGETS = (
    b"/",
    b"/v1/models/..%2f..",
    b"/v1/chunks/" + b"a" * 9000,
    b"http://other/",
    b"*",
    b"/%ff",
    b"/v1/chat/completions?a=%",
)
_METHODS = (b"GET", b"PUT", b"DELETE", b"OPTIONS", b"HEAD", b"TRACE", b"BREW")


async def sent(port: int, request: bytes, seconds: float = 10) -> bytes:
    """What came back until the server closed, or said enough to be told apart."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    try:
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(seconds):
            return await reader.read(4096)
    except (OSError, TimeoutError):
        return b""
    finally:
        _reset(writer)


async def vanished(port: int) -> None:
    """Asks for a stream and is gone after its first bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(question(stream=True))
    await reader.read(100)
    _reset(writer)


async def touched(port: int) -> None:
    """Connects, says a word perhaps, and is gone."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/models HTTP/1.1\r\n")
    _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    connected = writer.get_extra_info("socket")
    if connected is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
    writer.transport.abort()


async def many(tasks: Iterable[Callable[[], Awaitable[object]]]) -> list[object]:
    """All of them, so many at a time; what one could not do is part of its result."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(task: Callable[[], Awaitable[object]]) -> object:
        async with gate:
            try:
                return await task()
            except OSError as error:
                return error

    return list(await asyncio.gather(*(one(task) for task in tasks)))


def statuses(answers: Iterable[object]) -> Counter[str]:
    """How often which status came; `none` where the connection was closed without one."""
    lines = (
        answer[9:12].decode() if isinstance(answer, bytes) and answer[:5] == b"HTTP/" else "none" for answer in answers
    )
    return Counter(lines)


def resident(server: ServerProcess) -> float:
    """MiB of the server and its children."""
    process = psutil.Process(server.process.pid)
    return sum(each.memory_info().rss for each in (process, *process.children(recursive=True))) / 2**20


def open_files(server: ServerProcess) -> int:
    """Its descriptors."""
    return int(psutil.Process(server.process.pid).num_fds())
