"""The running server as its surfaces see it: the pipeline, its names, its health and its digests."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from tailhold_api.audit import Recording
from tailhold_api.codec import digest
from tailhold_api.parts import SHORT, PodPart
from tailhold_api.status import Progress
from tailhold_server.access.caller import ANONYMOUS, Caller
from tailhold_server.access.limits import Limiter
from tailhold_server.access.metering import Meter as ClientMeter
from tailhold_server.audit.auditor import Auditor, NoAuditor
from tailhold_server.capacity import Capacity, Limits, Shape, capacity
from tailhold_server.content import Content, Contents
from tailhold_server.delivery.progress import AbandonedError
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers import Handlers
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
        self._stall_seconds = stall_seconds
        self._patience_seconds = patience_seconds
        self._meter = ClientMeter(Limiter(), time.monotonic, self.telemetry.deny)
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
        return {"id": name, "object": "model", "created": self.started, "owned_by": "tailhold"}

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

    async def answer(
        self, question: Question, request_id: str, caller: Caller = ANONYMOUS, marks: Marks | None = None
    ) -> Answering:
        """Admit a question within the caller's limits, over what is open to its tenant. Raises ServeError."""
        if self._pipeline is None or self.phase not in ANSWERING:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        if not self.engine_verdict().ok:
            raise ServeError(Failure.UNAVAILABLE, "The model has stopped.", retry_after_seconds=30)
        ask = partial(self._pipeline.answer, question, request_id, caller.tenant, marks)
        return await self._meter.metered(caller.client, self.contents.current.part.limits, ask)

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
        with self._meter.counted(caller.client, self.contents.current.part.limits):
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
        """Questions that are being answered or wait."""
        return self._pipeline.held if self._pipeline else 0

    def revision_of(self, content: Content) -> str:
        """The revision's name."""
        return f"{self.pod_digest[:SHORT]}-{content.digest[:SHORT]}"

    def put_content(self, content: Content) -> None:
        """New questions are answered with this content."""
        self.contents.put(content)
        self.telemetry.show_revision(self.pod_digest, content.digest, content.index.snapshot)

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
        return Limits(self.pod.engine.max_running_requests, tokens)

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
            "revision": self.revision_of(content) if content else "",
            "index": index_body(content.index) if content else None,
            "snapshotsHeld": list(self._pipeline.contents.held) if self._pipeline else [],
            "phase": self.phase.value,
            "phases": phases_body(self.timeline.rows()),
            "error": self.error,
            "progress": self.progress_body(),
            "ready": self.is_ready().ok,
            "held": self.held,
            "audit": self.auditor.head(),
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
