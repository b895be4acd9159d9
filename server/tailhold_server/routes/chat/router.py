"""`POST /v1/chat/completions`."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress

import orjson
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tailhold_server import sse
from tailhold_server.access.caller import Caller, caller_of
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answering
from tailhold_server.question import Question
from tailhold_server.routes.chat.protocol import ChatRequest, parse, question
from tailhold_server.routes.chat.wire import Frame, completion, first_chunk, step_chunk, usage_chunk
from tailhold_server.routes.envelope import envelope
from tailhold_server.service import REVISION_HEADER, TRACE_HEADER, Service
from tailhold_server.trail import Trail

PATH = "/v1/chat/completions"

_BODY = {"required": True, "content": {"application/json": {"schema": ChatRequest.model_json_schema()}}}


def chat_router(service: Service) -> APIRouter:
    """The route over a service."""
    router = APIRouter()

    @router.post(PATH, openapi_extra={"requestBody": _BODY})
    async def chat(request: Request) -> Response:
        """Answer a question from the indexed documents, at once or as a stream."""
        try:
            asked = parse(await request.body())
            service.check_model(asked.model)
            return Completion(service, asked, question(asked), caller_of(request.scope), request.headers)
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

    def __init__(
        self, service: Service, asked: ChatRequest, put: Question, caller: Caller, headers: Mapping[str, str]
    ) -> None:
        super().__init__()
        self._service = service
        self._asked = asked
        self._question = put
        self._caller = caller
        self._request_id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model = asked.model or service.model_names[0]
        self._trail = Trail(service, headers, self._request_id, self._model, stream=bool(asked.stream))

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
        try:
            with suppress(asyncio.CancelledError):
                await work
            if work.cancelled():
                self._trail.count("client_closed")
        finally:
            self._trail.end()

    async def _respond(self, send: Send) -> None:
        try:
            answering = await self._service.answer(self._question, self._request_id, self._caller)
        except ServeError as error:
            self._trail.count(error.failure.outcome)
            raise
        self._trail.answering = answering
        frame = Frame(
            self._request_id,
            int(time.time()),
            self._model,
            self._service.revision_of(answering.prepared.content),
            bool(self._asked.stream) and self._asked.wants_usage,
            self._trail.name,
        )
        try:
            await (self._stream if self._asked.stream else self._whole)(answering, frame, send)
        finally:
            answering.close()

    async def _whole(self, answering: Answering, frame: Frame, send: Send) -> None:
        texts, reason = [], "stop"
        try:
            async with aclosing(answering.steps()) as steps:
                async for step in steps:
                    texts.append(step.text)
                    reason = step.finish_reason or reason
        except ServeError as error:
            self._trail.count(error.failure.outcome)
            raise
        body = orjson.dumps(completion(frame, "".join(texts), reason, answering.answer))
        headers = (
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *_said_of(frame),
            *answering.headers,
        )
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._ended_well(answering)

    async def _stream(self, answering: Answering, frame: Frame, send: Send) -> None:
        headers = (*sse.HEADERS, *_said_of(frame), *answering.headers)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pulse = Pulse(send, self._service.comment_seconds)
        try:
            await pulse.send(sse.event(first_chunk(frame, answering.prepared)))
            await self._steps(answering, frame, pulse.send)
        except ServeError as error:
            self._trail.count(error.failure.outcome)
            await pulse.send(sse.event(envelope(error)) + sse.DONE)
        finally:
            pulse.stop()
        await send({"type": "http.response.body", "body": b""})

    async def _steps(self, answering: Answering, frame: Frame, write: Callable[[bytes], Awaitable[None]]) -> None:
        async with aclosing(answering.steps()) as steps:
            async for step in steps:
                chunk = sse.event(step_chunk(frame, step, answering.answer))
                await write(chunk + self._ending(answering, frame) if step.finish_reason else chunk)
        if not answering.is_finished:
            raise ServeError(Failure.UNAVAILABLE, "The answer was cut: the server stops. Try again.")
        self._ended_well(answering)

    def _ending(self, answering: Answering, frame: Frame) -> bytes:
        usage = sse.event(usage_chunk(frame, answering.answer)) if frame.with_usage else b""
        return usage + sse.DONE

    def _ended_well(self, answering: Answering) -> None:
        answering.deliver()
        self._trail.count("ok")
        self._service.telemetry.observe(answering.answer)


class Pulse:
    """Sends a comment when a stream has been silent for so many seconds."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._task = asyncio.ensure_future(self._beat())

    async def send(self, body: bytes) -> None:
        """Send a piece of the stream."""
        self._sent_at = self._loop.time()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def stop(self) -> None:
        """No more comments."""
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            left = self._sent_at + self._seconds - self._loop.time()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self.send(sse.COMMENT)


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
