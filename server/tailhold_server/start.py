"""The start, step by step, each with its time."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace

from tailhold_api.conditions import Reason
from tailhold_api.parts import ContentPart
from tailhold_server.admission import Gate
from tailhold_server.audit.opening import open_auditor
from tailhold_server.audit.redact import compiled
from tailhold_server.backends import Backend, choose_backend
from tailhold_server.batcher import Batcher
from tailhold_server.content import Contents
from tailhold_server.deletions import keep_deleted
from tailhold_server.errors import ContentRefusedError, EngineDiedError, ServeError, StartError
from tailhold_server.handlers import Embedding, Handlers, Search, VectorStore, Visible
from tailhold_server.health import Phase
from tailhold_server.pipeline import Pipeline
from tailhold_server.ports import Encoder, Engine
from tailhold_server.question import Message, Question, Role
from tailhold_server.retriever import Found, Lookup, Retriever
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.tombstones import read_tombstones
from tailhold_server.template import TemplateError, skeleton

_LOG = logging.getLogger(__name__)

WARM_UP = Question((Message(Role.USER, "What are these documents about?"),), max_tokens=2, temperature=0.0)


@dataclass(frozen=True)
class Started:
    """What has to be closed."""

    engine: Engine
    retrieval: Batcher[Lookup, Found]
    deleting: "asyncio.Task[None] | None" = None
    """Keeps deletions in force."""

    async def close(self) -> None:
        """Engine first: its end ends the answers that run."""
        if self.deleting is not None:
            self.deleting.cancel()
        await self.engine.stop()
        await self.retrieval.close()


async def start(service: Service, content: ContentPart, settings: ServerSettings) -> Started:
    """Go through all phases and leave the service serving. Raises StartError.

    Encoder and index take their memory before the engine takes the rest.
    """
    with _phase(service, Phase.RESOLVE):
        check_redaction(content)
        service.auditor = await open_auditor(service, content.recording, settings)
        backend = await asyncio.to_thread(choose_backend, service.pod, settings)
    return await start_with(backend, service, content, deletion_seconds=settings.deletion_seconds)


def check_redaction(content: ContentPart) -> None:
    """Raises StartError that names the pattern which cannot be used."""
    try:
        compiled(content.recording.redaction)
    except ContentRefusedError as error:
        raise StartError(Reason.CONTENT_REFUSED, str(error)) from error


async def start_with(
    backend: Backend, service: Service, content: ContentPart, *, deletion_seconds: float = 5.0
) -> Started:
    """The phases after the first."""
    with _phase(service, Phase.LOAD_ENCODER):
        encoder = await asyncio.to_thread(backend.load_encoder)
    with _phase(service, Phase.LOAD_SNAPSHOT):
        contents = await _contents(backend, encoder, content)
    with _phase(service, Phase.START_ENGINE):
        pipeline, started, handlers = await _pipeline(service, backend, encoder, contents)
    service.install(pipeline, started.engine, handlers)
    service.put_content(contents.current)
    with _phase(service, Phase.WARM_UP):
        await _warm_up(pipeline)
    service.phase = Phase.SERVING
    return replace(started, deleting=asyncio.create_task(keep_deleted(contents, deletion_seconds)))


async def _contents(backend: Backend, encoder: Encoder, part: ContentPart) -> Contents:
    contents = Contents(backend.opener, encoder, lambda: read_tombstones(backend.store))
    try:
        contents.put(await asyncio.to_thread(contents.load, part))
    except ContentRefusedError as error:
        raise StartError(Reason.SNAPSHOT_REFUSED, str(error)) from error
    return contents


async def _pipeline(
    service: Service, backend: Backend, encoder: Encoder, contents: Contents
) -> tuple[Pipeline, Started, Handlers]:
    tokenizer = await asyncio.to_thread(backend.load_tokenizer)
    try:
        template = skeleton(tokenizer)
    except TemplateError as error:
        raise StartError(Reason.START_FAILED, str(error)) from error
    engine = backend.engine
    try:
        await engine.start()
    except BaseException:
        await engine.stop()
        raise
    retriever = Retriever(encoder, service.pod.embedder.query_prefix)
    retrieval = Batcher(retriever.work, lambda: contents.current.part.batching)
    retrieval.start()
    handlers = await _handlers(service, backend, encoder, contents, retrieval)
    pipeline = Pipeline(
        tokenizer=tokenizer,
        skeleton=template,
        retrieval=retrieval,
        contents=contents,
        engine=engine,
        gate=Gate(service.pod.engine.max_running_requests),
        max_model_tokens=service.pod.engine.max_model_tokens,
        visible=handlers.store.visible,
        public_url=(service.pod.server.public_url or "").rstrip("/"),
    )
    return pipeline, Started(engine, retrieval), handlers


async def _handlers(
    service: Service, backend: Backend, encoder: Encoder, contents: Contents, retrieval: Batcher[Lookup, Found]
) -> Handlers:
    visible = Visible()
    store = VectorStore(contents, visible, backend.store, service.pod.uploads, backend.uploads)
    with suppress(ServeError):  # a volume that fails takes no uploads, and answers all the same
        await store.refresh()
    search = Search(retrieval, contents, visible, store.own_attributes)
    return Handlers(Embedding(encoder, service.pod.embedder, retrieval), search, store)


async def _warm_up(pipeline: Pipeline) -> None:
    """A real question through the whole path: what fails here would fail for the first client."""
    try:
        answering = await pipeline.answer(WARM_UP, "warm-up")
        async with aclosing(answering.steps()) as steps:
            async for _ in steps:
                pass
    except (ServeError, EngineDiedError) as error:
        raise StartError(Reason.START_FAILED, f"the first question was not answered: {error}", final=False) from error


@contextmanager
def _phase(service: Service, phase: Phase) -> Iterator[None]:
    service.phase = phase
    began = time.monotonic()
    _LOG.info("%s", phase.value)
    yield
    service.phase_milliseconds[phase.value] = round(1000 * (time.monotonic() - began))
