"""The methods of `tailhold.v1.Rag`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status.rpc_status import to_status

from tailhold_server import recording
from tailhold_server.access.authentication import Authenticator
from tailhold_server.access.bearer import bearer_token
from tailhold_server.access.caller import ANONYMOUS, Caller
from tailhold_server.asking import Asking, Request
from tailhold_server.audit.events import Action
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answer
from tailhold_server.routes.chat.protocol import question
from tailhold_server.routes.files import check_open
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.decoding import decoded, each_decoded
from tailhold_server.rpc.failing import status_of
from tailhold_server.rpc.ingest import ingest
from tailhold_server.service import TRACE_HEADER, Service
from tailhold_server.uploads.entry import About

_SURFACE = "grpc"
"""As audit records name it."""
SERVICE = api.DESCRIPTOR.services_by_name["Rag"].full_name

_Context = grpc.aio.ServicerContext[Any, Any]

_LOG = logging.getLogger(__name__)


class Rag:
    """Answers over gRPC with what answers over HTTP. A call that is cancelled cancels everything that it began."""

    def __init__(
        self, service: Service, authenticator: Authenticator | None = None, receive_seconds: float = 30.0
    ) -> None:
        """A client that sends nothing more of what it began for `receive_seconds` is sent away."""
        self._service = service
        self._authenticator = authenticator
        self._receive_seconds = receive_seconds

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """By the method's name."""
        return {
            "Ask": grpc.unary_stream_rpc_method_handler(
                self._guarded(self._ask, api.AskRequest), None, api.AskResponse.SerializeToString
            ),
            "Retrieve": grpc.unary_unary_rpc_method_handler(
                self._guarded(self._retrieve, api.RetrieveRequest), None, api.RetrieveResponse.SerializeToString
            ),
            "Ingest": grpc.stream_unary_rpc_method_handler(
                self._guarded(self._ingest, api.IngestRequest), None, api.IngestResponse.SerializeToString
            ),
        }

    def _guarded(
        self, method: Callable[[Any, _Context], Awaitable[Any]], kind: type[Message]
    ) -> Callable[[bytes | AsyncIterator[bytes], _Context], Awaitable[Any]]:
        """Takes bytes: of those that cannot be decoded grpc itself would say UNKNOWN."""

        async def guarded(given: bytes | AsyncIterator[bytes], context: _Context) -> Any:
            try:
                asked = decoded(kind, given) if isinstance(given, bytes) else each_decoded(kind, given)
                return await method(asked, context)
            except ServeError as error:
                failed = error
            except Exception:  # grpc would send its words to the client: they may quote the prompt
                _LOG.exception("a call failed")
                failed = ServeError(Failure.INTERNAL, "The server made a mistake; its log says more.")
            status = to_status(status_of(failed))
            return await context.abort(status.code, status.details, status.trailing_metadata)

        return guarded

    async def _ask(self, asked: api.AskRequest, context: _Context) -> None:
        caller = await self._caller(context)
        async with Asking(self._service, self._told(asked, context, caller), "ask") as asking:
            asking.enter()
            answering = await asking.admit()
            await asking.begin()
            if asking.trace:
                await context.send_initial_metadata(((TRACE_HEADER.decode(), asking.trace),))
            await self._stream(asking, answering.answer, context)

    async def _retrieve(self, asked: api.RetrieveRequest, context: _Context) -> api.RetrieveResponse:
        caller = await self._caller(context)
        request = convert.search_request(asked)
        request_id, hits = await recording.search(self._service, request, caller, _SURFACE)
        await context.send_initial_metadata(((recording.REQUEST_HEADER, request_id),))
        return api.RetrieveResponse(passages=[convert.passage(each) for each in hits])

    async def _ingest(self, parts: AsyncIterator[api.IngestRequest], context: _Context) -> api.IngestResponse:
        caller = await self._caller(context)
        check_open(self._service, caller)
        with self._service.counted(caller):
            record = partial(self._record, caller)
            kept = await ingest(self._service.handlers.store, parts, self._receive_seconds, record)
        return api.IngestResponse(documents=[convert.stored(each) for each in kept])

    async def _record(self, caller: Caller, name: str, about: About) -> None:
        for action in (Action.UPLOADED, Action.ADDED):
            await recording.record_files(self._service, action, _SURFACE, caller, [recording.uploaded(name, about)])

    async def _caller(self, context: _Context) -> Caller:
        """From the call's metadata. Raises ServeError."""
        if self._authenticator is None:
            return ANONYMOUS
        values = [value for name, value in context.invocation_metadata() or () if name == "authorization"]
        try:
            token = bearer_token([each.encode() if isinstance(each, str) else each for each in values])
            return await self._authenticator.caller(token)
        except ServeError as error:
            self._service.telemetry.deny_for(error)
            raise

    def _told(self, asked: api.AskRequest, context: _Context, caller: Caller) -> Request:
        try:
            request = convert.chat_request(asked)
            self._service.check_model(request.model)
            put = question(request)
        except ServeError as error:
            self._service.telemetry.count(error.failure.outcome)
            raise
        headers = {str(name): str(value) for name, value in context.invocation_metadata() or ()}
        model = request.model or self._service.model_names[0]
        return Request(_SURFACE, put, model, headers, is_streamed=True, caller=caller)

    async def _stream(self, asking: Asking, answer: Answer, context: _Context) -> None:
        await self._write(context, convert.opening(answer.prepared, asking.revision, asking.model))
        async with aclosing(asking.steps()) as steps:
            async for step in steps:
                await self._write(context, convert.piece(step))
                if step.finish_reason:
                    await self._write(context, convert.ending(answer, step.finish_reason))
        asking.deliver()

    async def _write(self, context: _Context, part: api.AskResponse) -> None:
        """A client that takes nothing for so long has left."""
        try:
            async with asyncio.timeout(self._service.send_seconds):
                await context.write(part)
        except TimeoutError:
            raise ServeError(Failure.TOO_SLOW, "Nothing was taken of the answer for too long.") from None
