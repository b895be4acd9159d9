"""One question on its way through a surface: admitted, recorded, traced and counted alike, whatever the surface."""

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tailhold_server.access.caller import ANONYMOUS, Caller
from tailhold_server.admission import OVERLOADED
from tailhold_server.audit.auditor import Asked, NoTrail, Trail
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answering, Step
from tailhold_server.question import Question
from tailhold_server.service import Service
from tailhold_server.stages import Marks
from tailhold_server.tracing import Asked as Traced
from tailhold_server.tracing import traced


@dataclass(frozen=True)
class Request:
    """What a surface knows of a question."""

    surface: str
    """As audit records name it: `chat` for `/v1/chat/completions`, `grpc`."""
    question: Question
    model: str
    """As the client called it."""
    headers: Mapping[str, str]
    """Names in small letters."""
    is_streamed: bool
    caller: Caller = ANONYMOUS
    user: str | None = None
    """Whom the client says that it asks for."""


class Asking:
    """From the request's arrival to its end, as a context: left, it frees and settles everything.

    `admit` comes first, `begin` before anything is sent of an answer that is streamed, `steps` once, `deliver` when the
    client has it all.
    """

    def __init__(self, service: Service, request: Request, prefix: str) -> None:
        self._service = service
        self._request = request
        self.request_id = f"{prefix}-{uuid.uuid4().hex}"
        self.answering: Answering | None = None
        """What answers it, once it is admitted."""
        self.model = request.model
        self.revision = ""
        self._outcome = self._judged_as = ""
        self._began = time.monotonic()
        self._case = service.objectives.begin()
        self._context = service.tracer.begin(request.headers)
        self._trail: Trail = NoTrail()

    @property
    def trace(self) -> str:
        """The trace's id, empty where there is none."""
        return self._context.name if self._context else ""

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What is sent beside the answer: where its client stands within its limits."""
        return self.answering.headers if self.answering else ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, ServeError):
                await self.fail(error)
            elif not self._outcome:
                self._count("failed" if isinstance(error, Exception) else "client_closed")
        finally:  # also where the client leaves while a record of the failure is waited for
            self._free()

    def _free(self) -> None:
        self._service.objectives.end(self._case, self._judged_as)
        self._trail.left(self._outcome)
        if self.answering:
            self.answering.close()
        self._end_trace()

    async def admit(self) -> Answering:
        """Raises ServeError."""
        asked = self._request
        self._case.marks = Marks(self._case.began)
        asking = self._service.answer(asked.question, self.request_id, asked.caller, self._case.marks)
        answering = self.answering = await asking
        self.revision = self._service.revision_of(answering.prepared.content)
        told = Asked(
            asked.question, asked.surface, asked.caller, asked.user, asked.is_streamed, self.revision, asked.model
        )
        self._trail = self._service.auditor.opened(answering, told)
        return answering

    async def begin(self) -> None:
        """The answer may be sent from here on. Raises ServeError."""
        await self._trail.begun()

    async def steps(self) -> AsyncGenerator[Step, None]:
        """As Answering gives them; the last one is recorded before it is handed over. Raises ServeError."""
        assert self.answering is not None  # noqa: S101  admitted first
        async with aclosing(self.answering.steps()) as steps:
            async for step in steps:
                self._trail.said(step.text)
                if step.finish_reason:
                    await self._trail.ended("ok", step.finish_reason)
                yield step
        if not self.answering.is_finished:
            raise ServeError(Failure.UNAVAILABLE, "The answer was cut: the server stops. Try again.")

    def deliver(self) -> None:
        """The client has taken the end of the answer."""
        assert self.answering is not None  # noqa: S101
        self.answering.deliver()
        self._count("ok")
        self._service.telemetry.observe(self.answering.answer)

    async def fail(self, error: ServeError) -> None:
        """The client is told so."""
        if not self._outcome:
            self._count(error.failure.outcome)
            self._judged_as = "shed" if error.code == OVERLOADED else self._outcome
            if self.answering:
                with suppress(ServeError):
                    await self._trail.ended(self._outcome)

    def _count(self, outcome: str) -> None:
        self._outcome = self._judged_as = outcome
        self._service.telemetry.count(outcome)

    def _end_trace(self) -> None:
        if self._context is None:
            return
        asked = Traced(self.request_id, self._request.model, self._service.pod.pipeline, self._request.is_streamed)
        answer = self.answering.answer if self.answering else None
        ended = time.monotonic()
        spans = traced(self._context, asked, self._began, ended, self._outcome, answer, self.revision)
        self._service.tracer.end(spans)
