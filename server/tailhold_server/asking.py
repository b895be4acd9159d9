"""One question on its way through a surface: admitted, recorded, traced and counted alike, whatever the surface."""

import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from tailhold_server.access.caller import ANONYMOUS, Caller
from tailhold_server.access.limits import Ticket
from tailhold_server.access.metering import Pairs
from tailhold_server.admission import OVERLOADED
from tailhold_server.audit.auditor import Asked, NoTrail, Trail
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handover.outcomes import Outcome
from tailhold_server.handover.receiving import Handed
from tailhold_server.handover.told import Told
from tailhold_server.objectives import Case
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
    handed: Handed | None = None
    """Given where another pod hands it over."""


class Asking:
    """From the request's arrival to its end, as a context: left, it frees and settles everything.

    `enter` comes first, then `admit`, `begin` before anything is sent of an answer that is streamed, `steps` once,
    `deliver` when the client has it all. A candidate may be asked between `enter` and `admit`: `give`, then `charge`,
    `spend` and `passed_on`, or `take_back`.
    """

    def __init__(self, service: Service, request: Request, prefix: str) -> None:
        self._service = service
        self._request = request
        self.request_id = request.handed.request_id if request.handed else f"{prefix}-{uuid.uuid4().hex}"
        self.answering: Answering | None = None
        """What answers it here, once it is admitted."""
        self.model = request.model
        self.revision = ""
        self.outcome = ""
        """How it ended; empty before that."""
        self._judged_as = ""
        self._began = time.monotonic()
        self._ticket: Ticket | None = None
        self._tokens_used = 0
        self._tried: Outcome | None = None
        """What became of it at a candidate."""
        self._case = service.objectives.begin(service.revision) if request.handed is None else Case(self._began)
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
            elif not self.outcome:
                self._count("failed" if isinstance(error, Exception) else "client_closed")
        finally:  # also where the client leaves while a record of the failure is waited for
            self._free()

    def _free(self) -> None:
        self._service.objectives.end(self._case, self._judged_as)
        self._trail.left(self.outcome)
        if self.answering:
            self.answering.close()
        if self._ticket:
            self._service.meter.settle(self._ticket, self._tokens_used)
        self._end_trace()

    def enter(self) -> None:
        """Hold the client to its limits; whoever hands it over has done so. Raises ServeError."""
        if self._request.handed is None:
            self._ticket = self._service.enter(self._request.caller)

    async def admit(self) -> Answering:
        """To be answered here. Raises ServeError."""
        asked = self._request
        marks = Marks(self._case.began if self._tried is None else time.monotonic())
        if self._tried is None:
            self._case.marks = marks
        asking = self._service.answer(asked.question, self.request_id, asked.caller.tenant, marks, self._ticket)
        answering = self.answering = await self._settled(asking)
        self.revision = self._service.revision_of(answering.prepared.content)
        told = Asked(
            asked.question, asked.surface, asked.caller, asked.user, asked.is_streamed, self.revision, asked.model
        )
        self._trail = self._service.auditor.opened(answering, told)
        return answering

    async def _settled(self, asking: Awaitable[Answering]) -> Answering:
        """What a candidate refused was a bad request where it is refused here too, else the candidate's failure."""
        try:
            answering = await asking
        except ServeError as error:
            self._settle("invalid" if error.failure.outcome == "invalid" else "failed")
            raise
        self._settle("failed")
        return answering

    def _settle(self, outcome: str) -> None:
        if self._tried is Outcome.REFUSED:
            self._service.objectives.end(self._case, outcome)

    def give(self, revision: str) -> Marks:
        """A candidate of this revision is asked. Where it stands is to be marked, from the request's arrival on."""
        self._service.objectives.give(self._case, revision)
        self.revision = revision
        self._case.marks = Marks(self._case.began)
        return self._case.marks

    def take_back(self, outcome: Outcome) -> None:
        """The candidate gave no answer, so that it is answered here, and is no longer counted for anybody."""
        self._tried = outcome
        self.revision = ""
        if outcome is not Outcome.REFUSED:
            self._service.objectives.end(self._case, "invalid" if outcome is Outcome.MISDIRECTED else "failed")

    def charge(self, most_tokens: int) -> Pairs:
        """A candidate's answer may need so many: where the client stands then, as headers. Raises ServeError."""
        assert self._ticket is not None  # noqa: S101  entered first
        return self._service.meter.charge(self._ticket, most_tokens)

    def spend(self, tokens: int) -> None:
        """A candidate's answer has needed so many until now."""
        self._tokens_used = tokens

    def passed_on(self) -> None:
        """The client has taken the end of a candidate's answer."""
        self._tried = Outcome.ANSWERED
        self._count("ok")

    @property
    def told(self) -> Told:
        """What the pod that handed it over is told of the answer so far."""
        if self.answering is None:
            return Told(outcome=self.outcome)
        prepared, marks = self.answering.prepared, self.answering.prepared.marks
        return Told(
            outcome=self.outcome,
            found=_since(marks.began, marks.found),
            first=_since(marks.began, marks.first_token),
            gap=marks.longest_gap,
            most=prepared.most_tokens,
            used=self.answering.tokens_used or len(prepared.prompt_ids),
        )

    @property
    def trace_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Where the request stands in its trace, for whom it is handed over to; empty where there is none here."""
        return self._context.headers if self._context else ()

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
        if not self.outcome:
            self._count(error.failure.outcome)
            self._judged_as = "shed" if error.code == OVERLOADED else self.outcome
            if self.answering:
                with suppress(ServeError):
                    await self._trail.ended(self.outcome)

    def _count(self, outcome: str) -> None:
        """What is handed over is counted where it is handed over."""
        self.outcome = self._judged_as = outcome
        if self._request.handed is None:
            self._service.telemetry.count(outcome)

    def _end_trace(self) -> None:
        if self._context is None:
            return
        asked = Traced(self.request_id, self._request.model, self._service.pod.pipeline, self._request.is_streamed)
        answer = self.answering.answer if self.answering else None
        spans = traced(self._context, asked, self._began, time.monotonic(), self.outcome, answer, self.revision)
        if self._tried is not None:
            spans = replace(spans, facts={**spans.facts, "tailhold.handover": self._tried.value})
        self._service.tracer.end(spans)


def _since(began: float, then: float | None) -> float | None:
    return None if then is None else max(0.0, then - began)
