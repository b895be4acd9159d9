"""The running server as its surfaces see it: the pipeline, its names, its health and its digests."""

import logging
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any

from tailhold_api.audit import Recording
from tailhold_api.codec import digest
from tailhold_api.handover import Handover
from tailhold_api.parts import PodPart, revision_name
from tailhold_api.rollout import Probe
from tailhold_api.stand_in import is_stand_in
from tailhold_api.status import ProbeStatus, Progress
from tailhold_server.access.caller import Caller
from tailhold_server.access.limits import Limiter, Ticket
from tailhold_server.access.metering import Meter as ClientMeter
from tailhold_server.audit.auditor import Auditor, NoAuditor
from tailhold_server.capacity import Capacity, Limits, Shape, capacity
from tailhold_server.content import Content, Contents
from tailhold_server.delivery.progress import AbandonedError
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers import Handlers
from tailhold_server.handover.carrier import Carrier
from tailhold_server.handover.handovers import Handovers
from tailhold_server.health import (
    ANSWERING,
    Phase,
    Verdict,
    judge_alive,
    judge_engine,
    judge_ready,
    judge_started,
    patience,
)
from tailhold_server.objectives import Counted
from tailhold_server.observed import ObservedEngine
from tailhold_server.pipeline import Answering, Pipeline
from tailhold_server.probe import probe
from tailhold_server.question import Question
from tailhold_server.stages import Marks
from tailhold_server.startup import Timeline
from tailhold_server.telemetry import Telemetry
from tailhold_server.tracing import NoTracer, Tracer
from tailhold_server.tuning import index_body, phases_body, rates_body
from tailhold_server.watching import Watchman

_LOG = logging.getLogger(__name__)

REVISION_HEADER = b"x-tailhold-revision"
TRACE_HEADER = b"x-tailhold-trace"


class Service:
    """One for each process. It is there before the pipeline is: probes are answered from the first second."""

    def __init__(
        self,
        pod: PodPart,
        *,
        stall_seconds: float = 10.0,
        patience_seconds: float = 60.0,
        comment_seconds: float = 10.0,
        send_seconds: float = 30.0,
    ) -> None:
        self.pod = pod
        self.pod_digest = digest(pod)
        self.telemetry = Telemetry()
        self.objectives = Counted()
        self.telemetry.registry.register(self.objectives)
        self.peer_context: Callable[[], ssl.SSLContext] = lru_cache(1)(ssl.create_default_context)
        """What the certificates of candidates are checked with."""
        self.handovers = Handovers(self.telemetry.count_handover, Carrier(lambda: self.peer_context()))
        self.telemetry.show_in_flight(lambda: self.handovers.in_flight)
        self.tracer: Tracer = NoTracer()
        self.auditor: Auditor = NoAuditor()
        self.access_told: Callable[[], dict[str, Any] | None] = lambda: None
        """What of clients' keys and certificates cannot be used; the program says how to find out."""
        self.comment_seconds = comment_seconds
        self.send_seconds = send_seconds
        self.phase = Phase.RESOLVE
        self.timeline = Timeline(self._show)
        self.listens = True
        """Whether clients can connect; the program says when."""
        self.error = ""
        self.progress: Progress | None = None
        self._abandoned = False
        self.fault: Verdict | None = None
        """Why the engine was given up; it stays so."""
        self.first_prompt_tokens = 0
        """Of the first question: what prompts are like before there were others."""
        self.started = int(time.time())
        self.is_made_up = is_stand_in(pod.pod.env)
        """Whether answers come from the stand-in engine."""
        self._stall_seconds = stall_seconds
        self._patience_seconds = patience_seconds
        self.meter = ClientMeter(Limiter(), time.monotonic, self.telemetry.deny)
        self._pipeline: Pipeline | None = None
        self._engine: ObservedEngine | None = None
        self._watchman: Watchman | None = None
        self._handlers: Handlers | None = None

    def tell(self, progress: Progress | None) -> None:
        """What is fetched, and how far it is; None once nothing is. From any thread. Raises AbandonedError."""
        if self._abandoned:
            raise AbandonedError
        if progress and _tenth(progress) != (self.progress and _tenth(self.progress)):
            _LOG.info("%s: %d of %d %s", progress.step, progress.done, progress.total, progress.unit)
        self.progress = progress

    def abandon(self) -> None:
        """The start is given up: a fetch ends at its next word."""
        self._abandoned = True

    def install(self, pipeline: Pipeline, engine: ObservedEngine, watchman: Watchman, handlers: Handlers) -> None:
        """The start has come so far that questions can be answered."""
        self._pipeline = pipeline
        self._engine = engine
        self._watchman = watchman
        self._handlers = handlers

    def _show(self, phase: Phase) -> None:
        self.phase = phase

    @property
    def handlers(self) -> Handlers:
        """All but the answers. Raises ServeError before the start is over, and while the server drains."""
        if self._handlers is None or self.phase not in ANSWERING:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        return self._handlers

    @property
    def model_names(self) -> tuple[str, ...]:
        """What clients may send as `model`: the same on every revision of a pipeline."""
        served = self.pod.generator.served_name
        return tuple(dict.fromkeys(name for name in (served, self.pod.pipeline) if name))

    def model_body(self, name: str) -> dict[str, Any]:
        """A name in the list of models."""
        owner = "tailhold-stand-in" if self.is_made_up else "tailhold"
        return {"id": name, "object": "model", "created": self.started, "owned_by": owner}

    @property
    def embedder_name(self) -> str:
        """The embedder's name beside those of the pipeline."""
        return f"{self.pod.pipeline}-embedder"

    @property
    def vector_store_id(self) -> str:
        """The pipeline as a vector store: the same on every revision."""
        return f"vs_{self.pod.pipeline}"

    def check_embedder(self, name: str | None) -> None:
        """Raises ServeError for a name that is none of ours."""
        if name != self.embedder_name:
            self.check_model(name)

    def check_model(self, name: str | None) -> None:
        """Raises ServeError for a name that is none of ours; no name is ours."""
        if name and name not in self.model_names:
            known = ", ".join((*self.model_names, self.embedder_name))
            raise ServeError(
                Failure.NOT_FOUND,
                f"The model `{name[:200]}` does not exist here; there is {known}.",
                param="model",
                code="model_not_found",
            )

    def enter(self, caller: Caller) -> Ticket:
        """A place for a question within the caller's limits, to be settled in any case. Raises ServeError."""
        self._check_serving()
        return self.meter.enter(caller.client, self.contents.current.part.limits)

    async def answer(
        self, question: Question, request_id: str, tenant: str, marks: Marks, ticket: Ticket | None
    ) -> Answering:
        """Admit a question, over what is open to the tenant; without a ticket it is held to no client's limits.

        Raises ServeError.
        """
        pipeline = self._check_serving()
        ask = partial(pipeline.answer, question, request_id, tenant, marks)
        return await (ask() if ticket is None else self.meter.metered(ticket, ask))

    def _check_serving(self) -> Pipeline:
        if self._pipeline is None or self.phase not in ANSWERING:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        if not self.engine_verdict().ok:
            raise ServeError(Failure.UNAVAILABLE, "The model has stopped.", retry_after_seconds=30)
        return self._pipeline

    @property
    def contents(self) -> Contents:
        """The content in force. Raises ServeError before there is one."""
        if self._pipeline is None:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        return self._pipeline.contents

    def closed_to(self, caller: Caller) -> frozenset[str]:
        """The corpus sources that a caller may be told nothing of. Raises ServeError before there is content."""
        return self.contents.current.part.closed_to(caller.tenant)

    @contextmanager
    def counted(self, caller: Caller) -> Iterator[None]:
        """A request of a caller that is no question, within its limits of requests. Raises ServeError."""
        with self.meter.counted(caller.client, self.contents.current.part.limits):
            yield

    def tenant_of(self, client: str) -> str:
        """The tenant of a client that has a key."""
        content = self._pipeline.contents.latest if self._pipeline else None
        return content.part.tenants.get(client, "") if content else ""

    @property
    def recording(self) -> Recording | None:
        """What is recorded of answers to new questions; None before there is content."""
        latest = self._pipeline.contents.latest if self._pipeline else None
        return latest.part.recording if latest else None

    @property
    def held(self) -> int:
        """Questions that are being answered or wait, here or at a candidate that they were handed over to."""
        return (self._pipeline.held if self._pipeline else 0) + self.handovers.in_flight

    def revision_of(self, content: Content) -> str:
        """The revision's name."""
        return revision_name(self.pod_digest, content.digest)

    @property
    def revision(self) -> str:
        """Of what new questions are answered with; empty before there is content."""
        content = self._pipeline.contents.latest if self._pipeline else None
        return self.revision_of(content) if content else ""

    def hand_over(self, handover: Handover) -> None:
        """Holds for ten seconds, unless it is said again."""
        self.handovers.put(handover)
        if not handover.is_over:
            self.objectives.know(handover.revision)

    async def probe(self, asked: Probe) -> ProbeStatus:
        """Ask ourselves. Raises ServeError before the start is over."""
        return await probe(self._check_serving(), asked)

    def put_content(self, content: Content) -> None:
        """New questions are answered with this content."""
        self.contents.put(content)
        self.telemetry.show_revision(self.pod_digest, content.digest, content.index.snapshot)
        self.objectives.know(self.revision_of(content))

    def engine_verdict(self) -> Verdict:
        """Whether the engine runs and moves."""
        if self.fault is not None:
            return self.fault
        if self._engine is None or self._watchman is None:
            return Verdict(False, "the engine is not started")
        return judge_engine(
            self._engine.is_alive(),
            self._watchman.watch,
            stall_seconds=self._stall_seconds,
            patience_seconds=self._patience(self._engine),
        )

    def _patience(self, engine: ObservedEngine) -> float:
        longest = max(self.pod.engine.max_model_tokens, self.pod.engine.max_batched_tokens or 0)
        return patience(self._patience_seconds, longest, engine.meter.prefill.known)

    def is_started(self) -> Verdict:
        """For `/startupz`."""
        return judge_started(self.phase)

    def is_ready(self) -> Verdict:
        """For `/readyz`."""
        if not self.listens:
            return Verdict(False, "the ports for clients are not open yet")
        return judge_ready(self.phase, self.engine_verdict())

    def is_alive(self) -> Verdict:
        """For `/livez`."""
        return judge_alive(self.phase, self.engine_verdict())

    def progress_body(self) -> dict[str, Any] | None:
        """How far a fetch is, as the status has it."""
        return self.progress.model_dump(mode="json", by_alias=True) if self.progress else None

    @property
    def shape(self) -> Shape | None:
        """What questions are like: as seen, or before that the first one's prompt and the longest answer by default."""
        seen = self._engine.meter.shape() if self._engine else None
        if seen or not self.first_prompt_tokens:
            return seen
        tokens = float(self.first_prompt_tokens)
        lookup = self._engine.meter.lookup.known if self._engine else None
        return Shape(tokens, tokens, float(self.contents.current.part.prompt.max_answer_tokens), lookup or 0.0)

    @property
    def capacity(self) -> Capacity | None:
        """What this pod can carry; None before its rates are known."""
        shape = self.shape
        if self._engine is None or shape is None:
            return None
        return capacity(self._engine.meter.rates(), shape, self._limits(self._engine))

    def _limits(self, engine: ObservedEngine) -> Limits:
        told = engine.description()
        blocks, size = told.get("kvBlocks"), told.get("blockSizeTokens")
        tokens = blocks * size if isinstance(blocks, int) and isinstance(size, int) else None
        slots = told.get("slots")  # of a stand-in, whose answers do not slow each other down
        most = self.pod.engine.max_running_requests
        return Limits(slots, tokens, prompts=slots) if isinstance(slots, int) else Limits(most, tokens)

    def metrics_text(self) -> str:
        """The server's metrics and the engine's."""
        if self._engine:
            self.telemetry.show_rates(self._engine.meter.rates(), self.capacity)
        return self.telemetry.text() + (self._engine.metrics_text() if self._engine else "")

    @property
    def staged(self) -> str:
        """Digest of the documents that clients added, as of the last look; empty for none."""
        return self._handlers.store.staged if self._handlers else ""

    async def look(self, seconds: float | None = None) -> None:
        """Look at what clients uploaded, so that what is told of it is true. A volume that fails, or takes longer than
        so many seconds, tells what it was."""
        if self._handlers is not None:
            with suppress(ServeError):
                await self._handlers.store.refresh(seconds)

    def tuning(self) -> dict[str, Any]:
        """What is in force."""
        content = self._pipeline.contents.latest if self._pipeline else None
        return {
            "pipeline": self.pod.pipeline,
            "podDigest": self.pod_digest,
            "contentDigest": content.digest if content else "",
            "snapshot": content.index.snapshot if content else "",
            "revision": self.revision,
            "index": index_body(content.index) if content else None,
            "snapshotsHeld": list(self._pipeline.contents.held) if self._pipeline else [],
            "phase": self.phase.value,
            "phases": phases_body(self.timeline.rows()),
            "error": self.error,
            "progress": self.progress_body(),
            "ready": self.is_ready().ok,
            "held": self.held,
            "audit": self.auditor.head(),
            "handover": self.handovers.body(),
            "access": self.access_told(),
            "objectives": [each.model_dump(mode="json", by_alias=True) for each in self.objectives.kept],
            "uploads": {"digest": self.staged} if self._handlers and self.pod.uploads else None,
            "engine": self._engine.description() if self._engine else {},
            "rates": rates_body(self._engine.meter.rates(), self.shape, self.capacity) if self._engine else {},
            "pod": self.pod.model_dump(mode="json", by_alias=True),
            "content": content.part.model_dump(mode="json", by_alias=True) if content else {},
        }


def _tenth(progress: Progress) -> tuple[str, int]:
    """What a log line is written for."""
    return progress.step, 10 * progress.done // (progress.total or 1)
