"""The running server as its surfaces see it: the pipeline, its names, its health and its digests."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tailhold_api.audit import Recording
from tailhold_api.codec import digest
from tailhold_api.parts import SHORT, PodPart
from tailhold_server.audit.auditor import Auditor, NoAuditor
from tailhold_server.content import Content, Contents, Index
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers import Handlers
from tailhold_server.health import Phase, Verdict, judge_alive, judge_engine, judge_ready, judge_started
from tailhold_server.pipeline import Answering, Pipeline
from tailhold_server.ports import Engine
from tailhold_server.question import Question
from tailhold_server.telemetry import Telemetry
from tailhold_server.tracing import NoTracer, Tracer

REVISION_HEADER = b"x-tailhold-revision"
TRACE_HEADER = b"x-tailhold-trace"


class Service:
    """One for each process. It is there before the pipeline is: probes are answered from the first second."""

    def __init__(
        self,
        pod: PodPart,
        *,
        stall_seconds: float = 60.0,
        comment_seconds: float = 10.0,
        send_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pod = pod
        self.pod_digest = digest(pod)
        self.telemetry = Telemetry()
        self.tracer: Tracer = NoTracer()
        self.auditor: Auditor = NoAuditor()
        self.comment_seconds = comment_seconds
        self.send_seconds = send_seconds
        self.phase = Phase.RESOLVE
        self.phase_milliseconds: dict[str, int] = {}
        self.error = ""
        self.started = int(time.time())
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._pipeline: Pipeline | None = None
        self._engine: Engine | None = None
        self._handlers: Handlers | None = None

    def install(self, pipeline: Pipeline, engine: Engine, handlers: Handlers) -> None:
        """The start has come so far that questions can be answered."""
        self._pipeline = pipeline
        self._engine = engine
        self._handlers = handlers

    @property
    def handlers(self) -> Handlers:
        """All but the answers. Raises ServeError before the start is over, and while the server drains."""
        if self._handlers is None or self.phase is not Phase.SERVING:
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

    async def answer(self, question: Question, request_id: str) -> Answering:
        """Admit a question. Raises ServeError."""
        if self._pipeline is None or self.phase is not Phase.SERVING:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        if not self.engine_verdict().ok:
            raise ServeError(Failure.UNAVAILABLE, "The model has stopped.", retry_after_seconds=30)
        return await self._pipeline.answer(question, request_id)

    @property
    def contents(self) -> Contents:
        """The content in force. Raises ServeError before there is one."""
        if self._pipeline is None:
            raise ServeError(Failure.UNAVAILABLE, f"Not serving: {self.phase.value}.", retry_after_seconds=5)
        return self._pipeline.contents

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
        if self._engine is None:
            return Verdict(False, "the engine is not started")
        return judge_engine(
            self._engine.is_alive(),
            self._engine.progress(),
            now=self._clock(),
            stall_seconds=self._stall_seconds,
        )

    def is_started(self) -> Verdict:
        """For `/startupz`."""
        return judge_started(self.phase)

    def is_ready(self) -> Verdict:
        """For `/readyz`."""
        return judge_ready(self.phase, self.engine_verdict())

    def is_alive(self) -> Verdict:
        """For `/livez`."""
        return judge_alive(self.phase, self.engine_verdict())

    def metrics_text(self) -> str:
        """The server's metrics and the engine's."""
        return self.telemetry.text() + (self._engine.metrics_text() if self._engine else "")

    @property
    def staged(self) -> str:
        """Digest of the documents that clients added, as of the last look; empty for none."""
        return self._handlers.store.staged if self._handlers else ""

    async def look(self) -> None:
        """Look at what clients uploaded, so that what is told of it is true; a volume that fails tells what it was."""
        if self._handlers is not None:
            with suppress(ServeError):
                await self._handlers.store.refresh()

    def tuning(self) -> dict[str, Any]:
        """What is in force."""
        content = self._pipeline.contents.latest if self._pipeline else None
        return {
            "pipeline": self.pod.pipeline,
            "podDigest": self.pod_digest,
            "contentDigest": content.digest if content else "",
            "snapshot": content.index.snapshot if content else "",
            "revision": self.revision_of(content) if content else "",
            "index": _index_facts(content.index) if content else None,
            "snapshotsHeld": list(self._pipeline.contents.held) if self._pipeline else [],
            "phase": self.phase.value,
            "phases": self.phase_milliseconds,
            "error": self.error,
            "ready": self.is_ready().ok,
            "held": self.held,
            "audit": self.auditor.head(),
            "uploads": {"digest": self.staged} if self._handlers and self.pod.uploads else None,
            "engine": self._engine.description() if self._engine else {},
            "pod": self.pod.model_dump(mode="json", by_alias=True),
            "content": content.part.model_dump(mode="json", by_alias=True) if content else {},
        }


def _index_facts(index: Index) -> dict[str, Any]:
    """What a search finds, as far as it is known without one."""
    return {
        "snapshot": index.snapshot,
        "kind": index.kind.value,
        "chunks": len(index.chunks),
        "recallAt10": index.recall,
        "deletedDocuments": len(index.chunks.gone),
    }
