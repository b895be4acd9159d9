"""The methods of `tailhold.v1.Rag`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from grpc_status.rpc_status import to_status

from tailhold_server.asking import Asking, Request
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answer
from tailhold_server.routes.chat.protocol import question
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.failing import status_of
from tailhold_server.service import TRACE_HEADER, Service

SERVICE = api.DESCRIPTOR.services_by_name["Rag"].full_name

_Asked = TypeVar("_Asked")
_Context = grpc.aio.ServicerContext[Any, Any]

_LOG = logging.getLogger(__name__)


class Rag:
    """Answers over gRPC with what answers over HTTP. A call that is cancelled cancels everything that it began."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """By the method's name."""
        return {
            "Ask": grpc.unary_stream_rpc_method_handler(
                self._guarded(self._ask), api.AskRequest.FromString, api.AskResponse.SerializeToString
            ),
        }

    def _guarded(
        self, method: Callable[[_Asked, _Context], Awaitable[Any]]
    ) -> Callable[[_Asked, _Context], Awaitable[Any]]:
        async def guarded(asked: _Asked, context: _Context) -> Any:
            try:
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
        async with Asking(self._service, self._told(asked, context), "ask") as asking:
            answering = await asking.admit()
            await asking.begin()
            if asking.trace:
                await context.send_initial_metadata(((TRACE_HEADER.decode(), asking.trace),))
            await self._stream(asking, answering.answer, context)

    def _told(self, asked: api.AskRequest, context: _Context) -> Request:
        try:
            request = convert.chat_request(asked)
            self._service.check_model(request.model)
            put = question(request)
        except ServeError as error:
            self._service.telemetry.count(error.failure.outcome)
            raise
        headers = {str(name): str(value) for name, value in context.invocation_metadata() or ()}
        return Request("grpc", put, request.model or self._service.model_names[0], headers, is_streamed=True)

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
