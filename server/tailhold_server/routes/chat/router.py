"""`POST /v1/chat/completions`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress

import orjson
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tailhold_server import sse
from tailhold_server.access.caller import caller_of
from tailhold_server.asking import Asking
from tailhold_server.asking import Request as Told
from tailhold_server.errors import ServeError
from tailhold_server.handover.passing import Passing
from tailhold_server.handover.receiving import handed
from tailhold_server.handover.told import HEARTBEAT
from tailhold_server.handover.wire import TOLD, Sent
from tailhold_server.pipeline import Answer
from tailhold_server.ports import TokenOdds
from tailhold_server.question import Question
from tailhold_server.routes.chat.protocol import ChatRequest, Usage, parse, question
from tailhold_server.routes.chat.wire import Frame, completion, first_chunk, step_chunk, usage_chunk
from tailhold_server.routes.envelope import envelope
from tailhold_server.routes.reading import body_of, json_body
from tailhold_server.service import REVISION_HEADER, TRACE_HEADER, Service

PATH = "/v1/chat/completions"

_BODY = json_body(ChatRequest)
_JSON = (b"content-type", b"application/json")
_SIGNS_MISSED = 3
"""A candidate that gives none for so many times the pause between them is gone."""


def chat_router(service: Service) -> APIRouter:
    """The route over a service."""
    router = APIRouter()

    @router.post(PATH, openapi_extra={"requestBody": _BODY})
    async def chat(request: Request) -> Response:
        """Answer a question from the indexed documents, at once or as a stream."""
        try:
            body = await body_of(request)
            asked = parse(body)
            service.check_model(asked.model)
            return Completion(service, asked, question(asked), request, body)
        except ServeError as error:
            service.telemetry.count(error.failure.outcome)
            raise
        except ClientDisconnect:
            service.telemetry.count("client_closed")
            raise

    return router


class Completion(Response):
    """Answers while it listens for the client's leave, which cancels everything, the engine's part too.

    A client that takes nothing for `send_seconds` has left as well.
    """

    def __init__(self, service: Service, asked: ChatRequest, put: Question, request: Request, body: bytes) -> None:
        super().__init__()
        self._service = service
        self._sent = sent(request, body)
        self._is_streamed = bool(asked.stream)
        self._usage = asked.usage
        self._told = Told(
            "chat",
            put,
            asked.model or service.model_names[0],
            request.headers,
            self._is_streamed,
            caller_of(request.scope),
            asked.safety_identifier or asked.user,
            handed(request.scope),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ServeError for as long as nothing was sent."""
        leave = asyncio.ensure_future(_left(receive))
        work = asyncio.ensure_future(self._respond(_timely(send, self._service.send_seconds, leave.cancel)))
        try:
            await asyncio.wait({work, leave}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leave.cancel()
            if not work.done():
                work.cancel()
        with suppress(asyncio.CancelledError):
            await work

    async def _respond(self, send: Send) -> None:
        async with Asking(self._service, self._told, "chatcmpl") as asking:
            asking.enter()
            if await self._passed_on(asking, send):
                return
            answering = await asking.admit()
            frame = Frame(
                asking.request_id,
                int(time.time()),
                self._told.model,
                asking.revision,
                self._usage,
                asking.trace,
            )
            await (self._stream if self._is_streamed else self._whole)(asking, answering.answer, frame, send)

    async def _passed_on(self, asking: Asking, send: Send) -> bool:
        """Whether a candidate has answered."""
        handovers = self._service.handovers
        turn = None if self._told.handed else handovers.turn()
        if turn is None:
            return False
        silence = _SIGNS_MISSED * self._service.comment_seconds
        passing = Passing(asking, turn, self._sent, send, self._is_streamed, silence)
        return await passing.run(handovers.carrier)

    async def _whole(self, asking: Asking, answer: Answer, frame: Frame, send: Send) -> None:
        if self._told.handed:
            await self._whole_handed(asking, answer, frame, send)
            return
        body = await _read_whole(asking, answer, frame)
        length = (b"content-length", str(len(body)).encode())
        headers = (_JSON, length, *_said_of(frame), *asking.headers)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        asking.deliver()

    async def _whole_handed(self, asking: Asking, answer: Answer, frame: Frame, send: Send) -> None:
        """Begins at once, so that it is known to be worked on: nothing reaches the client before the end."""
        headers = (_JSON, *_said_of(frame), (TOLD, asking.told.header()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pulse, body = Pulse(send, self._service.comment_seconds, HEARTBEAT), b""
        try:
            await pulse.send(HEARTBEAT)
            body = await _read_whole(asking, answer, frame)
            asking.deliver()
        except ServeError as error:
            await asking.fail(error)
        finally:
            pulse.stop()
        await send({"type": "http.response.body", "body": body + b"\n" + asking.told.line()})

    async def _stream(self, asking: Asking, answer: Answer, frame: Frame, send: Send) -> None:
        await asking.begin()
        told = ((TOLD, asking.told.header()),) if self._told.handed else ()
        headers = (*sse.HEADERS, *_said_of(frame), *asking.headers, *told)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pulse = Pulse(send, self._service.comment_seconds)
        try:
            await pulse.send(sse.event(first_chunk(frame, answer)))
            await _steps(asking, answer, frame, pulse.send)
        except ServeError as error:
            await asking.fail(error)
            await pulse.send(sse.event(envelope(error)) + sse.DONE)
        finally:
            pulse.stop()
        await send({"type": "http.response.body", "body": asking.told.line() if self._told.handed else b""})


async def _read_whole(asking: Asking, answer: Answer, frame: Frame) -> bytes:
    texts, reason = [], "stop"
    odds: list[TokenOdds] = []
    async with aclosing(asking.steps()) as steps:
        async for step in steps:
            texts.append(step.text)
            odds += step.odds
            reason = step.finish_reason or reason
    return orjson.dumps(completion(frame, "".join(texts), reason, answer, odds))


async def _steps(asking: Asking, answer: Answer, frame: Frame, write: Callable[[bytes], Awaitable[None]]) -> None:
    async with aclosing(asking.steps()) as steps:
        async for step in steps:
            chunk = sse.event(step_chunk(frame, step, answer))
            await write(chunk + _ending(answer, frame) if step.finish_reason else chunk)
    asking.deliver()


def _ending(answer: Answer, frame: Frame) -> bytes:
    usage = b"" if frame.usage is Usage.NOWHERE else sse.event(usage_chunk(frame, answer))
    return usage + sse.DONE


class Pulse:
    """Sends a sign of life when a stream has been silent for so many seconds."""

    def __init__(self, send: Send, seconds: float, sign: bytes = sse.COMMENT) -> None:
        self._send = send
        self._sign = sign
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._task = asyncio.ensure_future(self._beat())

    async def send(self, body: bytes) -> None:
        """Send a piece of the stream."""
        self._sent_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def stop(self) -> None:
        """No more of them."""
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            left = self._sent_at + self._seconds - self._loop.time()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self.send(self._sign)


def sent(request: Request, body: bytes) -> Sent:
    """The request as it came, for whoever it is handed over to."""
    scope = request.scope
    return Sent(scope.get("raw_path") or PATH.encode(), scope["query_string"], tuple(scope["headers"]), body)


def _said_of(frame: Frame) -> tuple[tuple[bytes, bytes], ...]:
    revision = (REVISION_HEADER, frame.revision.encode())
    return (revision, (TRACE_HEADER, frame.trace.encode())) if frame.trace else (revision,)


def _timely(send: Send, seconds: float, give_up: Callable[[], object]) -> Send:
    async def timely(message: Message) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, give_up)
        try:
            await send(message)
        finally:
            timer.cancel()

    return timely


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
