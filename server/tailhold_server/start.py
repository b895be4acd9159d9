"""The start: what can be done side by side is, and the first error ends it all."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial

from tailhold_api.conditions import Reason
from tailhold_api.parts import ContentPart, PodPart
from tailhold_server.admission import Gate
from tailhold_server.audit.opening import open_auditor
from tailhold_server.audit.redact import compiled
from tailhold_server.backends import Backend, choose_backend
from tailhold_server.batcher import Batcher
from tailhold_server.calibration import calibrate
from tailhold_server.content import Contents
from tailhold_server.deletions import keep_deleted
from tailhold_server.errors import ContentRefusedError, EngineDiedError, ServeError, StartError
from tailhold_server.handlers import Embedding, Handlers, Search, VectorStore, Visible
from tailhold_server.health import Phase
from tailhold_server.ingest.report import UnreadableError
from tailhold_server.observed import ObservedEngine
from tailhold_server.pages import read_ahead
from tailhold_server.pipeline import Answer, Pipeline
from tailhold_server.ports import Encoder, Tokenizer
from tailhold_server.question import Message, Question, Role
from tailhold_server.rates import Meter
from tailhold_server.retriever import Found, Lookup, Retriever
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.tombstones import read_tombstones
from tailhold_server.startup import Timeline, apart
from tailhold_server.template import Skeleton, TemplateError, skeleton
from tailhold_server.uploads.reading import uploads_folder
from tailhold_server.uploads.threads import VolumeThreads
from tailhold_server.watching import Watchman

WARM_UP = Question((Message(Role.USER, "What are these documents about?"),), max_tokens=2, temperature=0.0)
_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Started:
    """What has to be closed."""

    engine: ObservedEngine
    retrieval: Batcher[Lookup, Found]
    watchman: Watchman
    deleting: "list[asyncio.Task[None]]" = field(default_factory=list)
    """Keeps deletions in force."""

    async def close(self) -> None:
        """Engine first: its end ends the answers that run."""
        for each in self.deleting:
            each.cancel()
        await self.watchman.close()
        await self.engine.stop()
        await self.retrieval.close()


@dataclass(frozen=True)
class _Loaded:
    tokenizer: Tokenizer
    template: Skeleton
    encoder: Encoder
    contents: Contents


async def start(service: Service, content: ContentPart, settings: ServerSettings) -> Started:
    """Go through all phases and leave the service serving. Raises StartError."""
    with service.timeline.step(Phase.RESOLVE):
        check_redaction(content)
        await check_uploads(service.pod, settings)
        service.auditor = await open_auditor(service, content.recording, settings)
        backend = await apart(partial(choose_backend, service.pod, settings, service.tell))
    return await start_with(backend, service, content, settings)


def check_redaction(content: ContentPart) -> None:
    """Raises StartError that names the pattern which cannot be used."""
    try:
        compiled(content.recording.redaction)
    except ContentRefusedError as error:
        raise StartError(Reason.CONTENT_REFUSED, str(error)) from error


async def check_uploads(pod: PodPart, settings: ServerSettings) -> None:
    """Raises StartError where the volume of uploads does not even say where it is."""
    if pod.uploads is None:
        return
    try:
        async with asyncio.timeout(settings.uploads_seconds):
            with suppress(UnreadableError):  # what is wrong with it is said by who uses it
                await apart(partial(uploads_folder, pod.uploads, settings.claims), "uploads")
    except TimeoutError:
        told = f"the volume of `corpus.uploads` does not answer: check the claim {pod.uploads.pvc.claim_name!r}"
        raise StartError(Reason.START_FAILED, told, final=False) from None


async def start_with(backend: Backend, service: Service, content: ContentPart, settings: ServerSettings) -> Started:
    """The phases after the first."""
    try:
        loaded = await _loaded(backend, service.timeline, service, content)
    except BaseException:
        await backend.engine.stop()
        raise
    engine = ObservedEngine(backend.engine, Meter())
    started = Started(engine, _retrieval(service, loaded, engine), Watchman(engine, settings.look_seconds))
    try:
        await _opened(service, backend, loaded, started, settings)
    except BaseException:
        await started.close()
        raise
    return started


async def _loaded(backend: Backend, timeline: Timeline, service: Service, content: ContentPart) -> _Loaded:
    """All parts, side by side. Where the engine shares a GPU it takes its memory last."""
    step = timeline.step

    async def parts() -> tuple[Encoder, Contents]:
        with step(Phase.LOAD_ENCODER):
            encoder = await apart(backend.load_encoder)
        with step(Phase.LOAD_SNAPSHOT):
            return encoder, await _contents(backend, encoder, content)

    async def engine(before: "asyncio.Task[tuple[Encoder, Contents]]") -> None:
        if backend.engine_takes_the_rest:
            await asyncio.wait({before})
            before.result()
        with step(Phase.START_ENGINE):
            await backend.engine.start()

    async def words() -> tuple[Tokenizer, Skeleton]:
        with step(Phase.LOAD_TOKENIZER):
            return await apart(partial(_words, backend))

    async def pages() -> None:
        with step(Phase.READ_FILES):
            await apart(partial(read_ahead, backend.files, service.pod.placement.memory_mebibytes * _MEBIBYTE // 2))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pages())
            with step(Phase.IMPORT):
                await apart(backend.import_libraries)
            spoken, looked_up = group.create_task(words()), group.create_task(parts())
            group.create_task(engine(looked_up))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return _Loaded(*spoken.result(), *looked_up.result())


async def _opened(
    service: Service, backend: Backend, loaded: _Loaded, started: Started, settings: ServerSettings
) -> None:
    """Questions go through, the rates are known, the watch is on: serving."""
    engine = started.engine
    handlers = await _handlers(service, backend, loaded, started.retrieval, settings.uploads_seconds)
    pipeline = Pipeline(
        tokenizer=loaded.tokenizer,
        skeleton=loaded.template,
        retrieval=started.retrieval,
        contents=loaded.contents,
        engine=engine,
        gate=Gate(service.pod.engine.max_running_requests),
        max_model_tokens=service.pod.engine.max_model_tokens,
        visible=handlers.store.visible,
        public_url=(service.pod.server.public_url or "").rstrip("/"),
    )
    service.install(pipeline, engine, started.watchman, handlers)
    service.put_content(loaded.contents.current)
    with service.timeline.step(Phase.WARM_UP):
        answer = await _warm_up(pipeline)
    engine.meter = Meter()  # the first question is slower than all others
    backend.teach(engine.meter, len(answer.prepared.prompt_ids))
    if backend.measures_at_start and settings.calibration_seconds:
        with service.timeline.step(Phase.CALIBRATE):
            await _calibrate(service, engine, answer, settings.calibration_seconds)
    service.first_prompt_tokens = len(answer.prepared.prompt_ids)
    started.watchman.start()
    started.deleting.append(asyncio.create_task(keep_deleted(loaded.contents, settings.deletion_seconds)))
    service.phase = Phase.SERVING


async def _calibrate(service: Service, engine: ObservedEngine, answer: Answer, seconds: float) -> None:
    marks = answer.prepared.marks
    first_token = marks.first_token - marks.handed if marks.first_token and marks.handed else 0.0
    await calibrate(
        engine.engine,
        engine.meter,
        answer.prepared.prompt_ids,
        first_token_seconds=first_token,
        running=service.pod.engine.max_running_requests,
        seconds=seconds,
        shares_prefixes=service.pod.engine.prefix_caching,
    )


async def _contents(backend: Backend, encoder: Encoder, part: ContentPart) -> Contents:
    contents = Contents(backend.opener, encoder, lambda: read_tombstones(backend.store))
    try:
        contents.put(await apart(partial(contents.load, part)))
    except ContentRefusedError as error:
        raise StartError(Reason.SNAPSHOT_REFUSED, str(error)) from error
    return contents


def _words(backend: Backend) -> tuple[Tokenizer, Skeleton]:
    tokenizer = backend.load_tokenizer()
    try:
        return tokenizer, skeleton(tokenizer)
    except TemplateError as error:
        raise StartError(Reason.START_FAILED, str(error)) from error


def _retrieval(service: Service, loaded: _Loaded, engine: ObservedEngine) -> Batcher[Lookup, Found]:
    retriever = Retriever(loaded.encoder, service.pod.embedder.query_prefix)

    def work(lookups: Sequence[Lookup]) -> list[Found]:
        found = retriever.work(lookups)
        engine.meter.looked_up(len(lookups), found[0].searched - found[0].began)
        return found

    retrieval = Batcher(work, lambda: loaded.contents.current.part.batching)
    retrieval.start()
    return retrieval


async def _handlers(
    service: Service, backend: Backend, loaded: _Loaded, retrieval: Batcher[Lookup, Found], seconds: float
) -> Handlers:
    visible = Visible(frozenset() if backend.uploads else None)  # what may have been deleted is not found
    threads = VolumeThreads(seconds)
    store = VectorStore(loaded.contents, visible, backend.store, service.pod.uploads, backend.uploads, threads)
    with suppress(ServeError):  # a volume that fails takes no uploads, and answers all the same
        await store.refresh()  # as long as one operation may take, and in the background after that
    search = Search(retrieval, loaded.contents, visible, store.own_attributes)
    return Handlers(Embedding(loaded.encoder, service.pod.embedder, retrieval), search, store)


async def _warm_up(pipeline: Pipeline) -> Answer:
    """A real question through the whole path: what fails here would fail for the first client."""
    try:
        answering = await pipeline.answer(WARM_UP, "warm-up")
        async with aclosing(answering.steps()) as steps:
            async for _ in steps:
                pass
    except (ServeError, EngineDiedError) as error:
        raise StartError(Reason.START_FAILED, f"the first question was not answered: {error}", final=False) from error
    return answering.answer
