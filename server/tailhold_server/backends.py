"""Which encoder, index, tokenizer and engine a server has: the real ones, or the stand-ins by name."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailhold_api.conditions import Reason
from tailhold_api.names import STAND_IN_VARIABLE
from tailhold_api.parts import PodPart
from tailhold_api.serving import EmbedderDevice
from tailhold_api.stand_in import StandIn, StandInError, Vectors, stand_in_of, told
from tailhold_server.content import Index, Opener
from tailhold_server.delivery.deliver import Places, deliver_snapshot
from tailhold_server.delivery.progress import Tell, silent
from tailhold_server.errors import ContentRefusedError, StartError
from tailhold_server.headroom import Free, Measure, check_room, free_host_bytes, need_of
from tailhold_server.ingest.report import UnreadableError
from tailhold_server.models import model_folder
from tailhold_server.ports import Encoder, Engine, Searcher, Tokenizer
from tailhold_server.rates import Meter
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.fingerprint import tokenizer_fingerprint
from tailhold_server.snapshots.manifest import Manifest
from tailhold_server.snapshots.read import Snapshot, open_manifest, open_snapshot
from tailhold_server.snapshots.store import snapshot_folder
from tailhold_server.tracing import NoTracer, Tracer
from tailhold_server.uploads.folder import Folder
from tailhold_server.uploads.reading import uploads_folder

_LOG = logging.getLogger(__name__)


_TRACED_TO = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables that name a collector."""


@dataclass(frozen=True)
class Backend:
    """How the parts are loaded. Each call but `engine` is slow: off the event loop."""

    load_encoder: Callable[[], Encoder]
    load_tokenizer: Callable[[], Tokenizer]
    opener: Opener
    engine: Engine
    store: Path
    """Where snapshots are."""
    uploads: Folder | None = None
    """Where clients' documents are, on a pipeline that takes any."""
    import_libraries: Callable[[], object] = lambda: None
    """In one thread, before anything is loaded: two threads that import the same packages get in each other's way."""
    files: tuple[Path, ...] = ()
    """What will be read, in the order of it."""
    engine_takes_the_rest: bool = False
    """Whether encoder and index have to have their memory before the engine starts: they share a GPU with it."""
    measures_at_start: bool = False
    """Whether the engine's rates are measured before it serves."""
    teach: Callable[[Meter, int], None] = lambda _meter, _prompt_tokens: None
    """Tells the meter what is known of the engine's rates without measuring, for prompts of so many tokens."""


def choose_backend(pod: PodPart, settings: ServerSettings, tell: Tell = silent) -> Backend:
    """The models are fetched where they have to be, and looked for at once: a missing one ends the start in its first
    second. `tell` hears how far that is. The stand-in is taken where the pod part asks for it, and nowhere else: no
    variable that comes from elsewhere makes answers up. Raises StartError."""
    try:
        behaviour = stand_in_of(pod.pod.env)
    except StandInError as error:
        raise StartError(Reason.START_FAILED, f"`pod.env` has `{STAND_IN_VARIABLE}` with {error}") from error
    return _stand_in(behaviour, pod, settings, tell) if behaviour else _real(pod, settings, tell)


def choose_tracer(pod: PodPart, settings: ServerSettings, count: Callable[[str, int], None]) -> Tracer:
    """Traces go where the command line, the spec or OpenTelemetry's own variables say, in this order; else nowhere.

    `count` is told what became of so many spans. Nothing of OpenTelemetry is loaded where nothing is traced.
    """
    otlp = pod.observability.otlp
    endpoint = settings.otlp_endpoint or (otlp.endpoint if otlp else None)
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if off or not (endpoint or any(os.environ.get(name) for name in _TRACED_TO)):
        return NoTracer()
    from tailhold_server.adapters.otlp import tracer_to

    return tracer_to(endpoint, pod, settings, count)


def _real(pod: PodPart, settings: ServerSettings, tell: Tell) -> Backend:
    from tailhold_server.adapters.engine import VllmEngine, engine_environment, prepare
    from tailhold_server.adapters.engine_arguments import engine_arguments, is_cpu_build

    places = Places.of(settings, pod.placement.cache_mebibytes)
    generator = model_folder(pod.generator.model, places, tell)
    embedder = model_folder(pod.embedder.model, places, tell)
    cores = len(os.sched_getaffinity(0))
    on_cpu = is_cpu_build()
    # From here on all is on this machine, and nothing asks a hub any more.
    prepare(engine_environment(pod, cores=cores, on_cpu=on_cpu))
    words = tokenizer_fingerprint(generator)
    device = "cpu" if on_cpu or pod.embedder.device is EmbedderDevice.CPU else "cuda"
    folder_of = partial(_folder, pod, settings, tell)
    opener = Opening(folder_of, partial(searcher, device=device), _measure(device), words, device)
    return Backend(
        load_encoder=lambda: _encoder(embedder, pod, on_cpu),
        load_tokenizer=lambda: _tokenizer(generator),
        opener=opener,
        engine=VllmEngine(engine_arguments(pod, model_folder=generator, on_cpu=on_cpu)),
        import_libraries=_import_libraries,
        files=(*sorted(embedder.glob("*.safetensors")), *sorted(generator.glob("*.safetensors"))),
        engine_takes_the_rest=not on_cpu,
        measures_at_start=True,
        store=_store(pod, settings),
        uploads=_uploads(pod, settings),
    )


def _import_libraries() -> None:
    """What encoder, tokenizer and engine have in common; with a small model, most of a start."""
    from tailhold_server.adapters import encoder, flat, tokenizer  # noqa: F401
    from tailhold_server.adapters.engine import import_vllm

    import_vllm()


def _stand_in(behaviour: StandIn, pod: PodPart, settings: ServerSettings, tell: Tell) -> Backend:
    """Without a model, or with the embedder alone."""
    from tailhold_server.stand_in.engine import WIDTH, PacedEngine
    from tailhold_server.stand_in.faults import Faults
    from tailhold_server.stand_in.models import TOKENIZER, encoder
    from tailhold_server.testing import StandInTokenizer

    _LOG.warning("%s: answers are made up, no language model is loaded: %s", STAND_IN_VARIABLE, told(behaviour))
    folder_of = partial(_folder, pod, settings, tell)
    opener = Opening(folder_of, _stand_in_searcher, _measure("cpu"), TOKENIZER)
    faults = Faults(behaviour, (settings.stand_in_node_faults, settings.stand_in_faults))
    engine = PacedEngine(behaviour, most_running=pod.engine.max_running_requests, behaviour=faults)
    backend = Backend(
        load_encoder=lambda: encoder(pod.embedder.dimension),
        load_tokenizer=lambda: StandInTokenizer(WIDTH),
        opener=opener,
        engine=engine,
        store=_store(pod, settings),
        uploads=_uploads(pod, settings),
        teach=engine.teach,
    )
    return backend if behaviour.embedder is Vectors.STAND_IN else _with_embedder(backend, pod, settings, tell)


def _with_embedder(backend: Backend, pod: PodPart, settings: ServerSettings, tell: Tell) -> Backend:
    """The same over an index that the spec's embedder made, on the CPU. Its token ids are those of the generator."""
    folder = model_folder(pod.embedder.model, Places.of(settings, pod.placement.cache_mebibytes), tell)
    opener = Opening(partial(_folder, pod, settings, tell), searcher, _measure("cpu"))
    return replace(
        backend,
        load_encoder=lambda: _encoder(folder, pod, on_cpu=True),
        opener=opener,
        import_libraries=_import_encoder,
        files=tuple(sorted(folder.glob("*.safetensors"))),
    )


def _import_encoder() -> None:
    from tailhold_server.adapters import encoder, flat  # noqa: F401


def _encoder(folder: Path, pod: PodPart, on_cpu: bool) -> Encoder:
    from tailhold_server.adapters.encoder import load_encoder
    from tailhold_server.adapters.engine import server_threads
    from tailhold_server.adapters.threads import limit_threads

    if on_cpu:
        limit_threads(server_threads(pod))
    return load_encoder(folder, pod.embedder)


def _tokenizer(folder: Path) -> Tokenizer:
    from tailhold_server.adapters.tokenizer import ModelTokenizer

    return ModelTokenizer(folder)


def _folder(pod: PodPart, settings: ServerSettings, tell: Tell, digest: str) -> Path:
    """Where the snapshot lies that the pod is to have. Raises ContentRefusedError."""
    if pod.snapshots is None:
        return snapshot_folder(_store(pod, settings), digest)
    try:
        return deliver_snapshot(pod.snapshots, digest, Places.of(settings, pod.placement.cache_mebibytes), tell)
    except StartError as error:
        raise ContentRefusedError(error.message) from error


def _store(pod: PodPart, settings: ServerSettings) -> Path:
    return settings.claims / (pod.store.claim_name if pod.store else "")


def _uploads(pod: PodPart, settings: ServerSettings) -> Folder | None:
    if pod.uploads is None:
        return None
    try:
        return Folder(uploads_folder(pod.uploads, settings.claims))
    except UnreadableError as error:
        raise StartError(Reason.START_FAILED, f"`corpus.uploads.pvc`: {error.detail}") from error


SearcherOf = Callable[[Snapshot], Searcher]


@dataclass(frozen=True)
class Opening:
    """Opens verified snapshots."""

    folder_of: Callable[[str], Path]
    """Where the snapshot of a digest lies. Raises ContentRefusedError."""
    searcher_of: SearcherOf
    measure: Measure = lambda: Free(None)
    tokenizer: str = ""
    """Fingerprint of the tokenizer whose token ids they must hold: another's are other words. Empty takes any."""
    device: str = "cpu"
    """What is searched on."""

    def __call__(self, digest: str) -> Index:
        """Nothing but the manifest is read before it is known that there is room. Raises ContentRefusedError."""
        folder = self.folder_of(digest)
        try:
            self._check(digest, open_manifest(folder, digest))
            snapshot = open_snapshot(folder, digest)
        except StartError as error:
            raise ContentRefusedError(error.message) from error
        manifest = snapshot.manifest
        return Index(
            digest,
            snapshot.chunks,
            self.searcher_of(snapshot),
            manifest.metric,
            manifest.dimension,
            manifest.embedder,
            manifest.build,
            kind=manifest.kind,
            recall=manifest.recall,
            vectors=snapshot.vectors,
        )

    def _check(self, digest: str, manifest: Manifest) -> None:
        if self.tokenizer and manifest.tokenizer != self.tokenizer:
            raise ContentRefusedError(
                f"snapshot {digest[:10]} has token ids of tokenizer {manifest.tokenizer[:10]}, the generator's "
                f"is {self.tokenizer[:10]}: rebuild the index with this generator"
            )
        check_room(digest, need_of(manifest, on_card=self.device == "cuda"), self.measure())


def searcher(snapshot: Snapshot, device: str = "cpu") -> Searcher:
    """The search that the snapshot was built for. FAISS computes on the CPU on any device."""
    vectors, metric = snapshot.vectors, snapshot.manifest.metric
    if snapshot.structure is None:
        from tailhold_server.adapters.flat import FlatSearcher

        return FlatSearcher(vectors, metric, device)
    from tailhold_server.adapters.faiss import searcher_of

    return searcher_of(vectors, metric, snapshot.structure)


def _measure(device: str) -> Measure:
    if device == "cpu":
        return lambda: Free(free_host_bytes())
    from tailhold_server.adapters.card import free_card_bytes

    return lambda: Free(free_host_bytes(), free_card_bytes())


def _stand_in_searcher(snapshot: Snapshot) -> Searcher:
    from tailhold_server.testing import StandInSearcher

    return StandInSearcher(snapshot.vectors)
