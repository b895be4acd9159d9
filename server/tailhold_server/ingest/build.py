"""Builds and publishes one snapshot."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from tailhold_api.codec import digest, dump
from tailhold_api.conditions import Reason
from tailhold_api.index_kinds import IndexKind
from tailhold_api.names import STAND_IN_VARIABLE
from tailhold_api.parts import BuildPart
from tailhold_api.sources import Index
from tailhold_api.status import Progress
from tailhold_server.delivery.deliver import Places
from tailhold_server.errors import StartError
from tailhold_server.ingest.collect import Collected, collect, empty_sources, passage_hash, why_empty, without
from tailhold_server.ingest.embed import Embedded, embed
from tailhold_server.ingest.report import BuildReport, DocumentFailure
from tailhold_server.ingest.sources import Found, read_source
from tailhold_server.ingest.split import Splitter
from tailhold_server.ingest.structure import EXACT, Structured, build_structure
from tailhold_server.ingest.tokens import ChunkTokens, tokenise
from tailhold_server.ingest.worker import Reader
from tailhold_server.models import model_folder
from tailhold_server.ports import Encoder
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots import Contents, keep_snapshots, write_snapshot
from tailhold_server.snapshots.store import LOCAL, newest_made_by, write_whole
from tailhold_server.snapshots.tombstones import Tombstones, read_tombstones
from tailhold_server.uploads.reading import read_uploads

_LOG = logging.getLogger(__name__)
BUILDS = "builds"
KEEP: int = Index.model_fields["keep_snapshots"].default
"""Snapshots held beside the new one where nobody says how many."""
Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Models:
    """What a build needs of the two models."""

    encoder: Encoder
    embedder_tokenizer: Tokenizer
    chunk_tokens: Callable[[Sequence[str]], ChunkTokens]
    """By the generator's tokenizer."""


def build(
    part: BuildPart,
    *,
    claims: Path,
    config_maps: Path,
    progress: Tell,
    keep: int = KEEP,
    pinned: Collection[str] = (),
    owner: str = LOCAL,
) -> BuildReport:
    """Build, publish, record, and delete what no owner of the volume holds. Raises StartError.

    `owner`, a pipeline as namespace/name, holds the new snapshot, `keep` before it, and `pinned`.
    """
    progress(Progress(step="loading models", done=0, total=2, unit="models"))
    models = load_models(part, claims, progress)
    return build_with(
        models, part, claims=claims, config_maps=config_maps, progress=progress, keep=keep, pinned=pinned, owner=owner
    )


def load_models(part: BuildPart, claims: Path, progress: Tell = lambda _: None) -> Models:
    """Both models; one that is missing ends the build before a document is read."""
    if part.stand_in:
        return _stand_ins(part)
    from tailhold_server.adapters.encoder import load_encoder, load_tokenizer

    places = Places.of(ServerSettings(claims=claims))
    folder = model_folder(part.embedder.model, places, lambda each: progress(each) if each else None)
    generator = model_folder(part.generator.model, places, lambda each: progress(each) if each else None)
    return Models(load_encoder(folder, part.embedder), load_tokenizer(folder), partial(tokenise, generator))


def _stand_ins(part: BuildPart) -> Models:
    from tailhold_server.stand_in.models import chunk_tokens, counting_tokenizer, encoder

    _LOG.warning("%s: the index is made of hashed words, no model is loaded", STAND_IN_VARIABLE)
    return Models(encoder(part.embedder.dimension), counting_tokenizer(), chunk_tokens)


def build_with(
    models: Models,
    part: BuildPart,
    *,
    claims: Path,
    config_maps: Path,
    progress: Tell,
    keep: int = KEEP,
    pinned: Collection[str] = (),
    owner: str = LOCAL,
) -> BuildReport:
    """The same with models that are loaded."""
    store, watch = claims / part.store.claim_name, Watch(progress)
    with watch.step("reading", "documents"):
        collected = _collect(models, part, claims, config_maps, watch)
    with watch.step("embedding", "chunks", len(collected.texts)):
        collected, embedded = _embed(models, collected, store, owner, watch)
    structured = EXACT
    if part.kind is not IndexKind.FLAT:
        with watch.step("indexing", "indexes", 1):
            structured = build_structure(part, embedded.vectors)
    with watch.step("publishing", "snapshots", 1):
        snapshot = write_snapshot(store, _contents(models, part, collected, embedded, structured))
        keep_snapshots(store, owner, snapshot, keep=keep, pinned=pinned, now=time.time())
    report = _report(snapshot, collected, embedded.reused, structured, watch.seconds)
    record(store, digest(part), report)
    return report


@dataclass
class Watch:
    """Times the steps and tells how far each is."""

    tell: Tell
    seconds: dict[str, float] = field(default_factory=dict)
    _step: str = ""
    _unit: str = ""
    _total: int = 0
    _since: float = 0.0

    @contextmanager
    def step(self, name: str, unit: str, total: int = 0) -> Iterator[None]:
        """One step; 0 where its size is not known."""
        self._step, self._unit, self._total, self._since = name, unit, total, time.monotonic()
        self.advance(0)
        yield
        self.seconds[name] = round(time.monotonic() - self._since, 3)

    def advance(self, done: int) -> None:
        """Say how much of the step is done."""
        passed = time.monotonic() - self._since
        left = round(passed / done * (self._total - done)) if done and self._total else None
        self.tell(Progress(step=self._step, done=done, total=self._total, unit=self._unit, eta_seconds=left))


def record(store: Path, build_digest: str, report: BuildReport) -> None:
    """Keep the report under the build's digest: it names each document that failed."""
    write_whole(store / BUILDS / f"{build_digest}.json", dump(report))


def _collect(models: Models, part: BuildPart, claims: Path, config_maps: Path, watch: Watch) -> Collected:
    sources = part.corpus.sources
    splitter = Splitter(models.embedder_tokenizer, part.embedder, part.corpus.chunking)
    collected = Collected()
    with Reader() as reader:
        items = _items(part, claims, config_maps)
        for done in collect(items, reader, splitter, collected, _deletions(claims / part.store.claim_name)):
            watch.advance(done)
    names = [source.name for source in sources]
    collected.failures += empty_sources(collected, names)
    _need_chunks(collected, names)
    return collected


def _deletions(store: Path) -> Tombstones:
    try:
        return read_tombstones(store)
    except OSError as error:
        message = f"what was deleted cannot be read: {error.strerror}: check the claim of `index.store`"
        raise StartError(Reason.INDEX_BUILD_FAILED, message, final=False) from error


def _items(part: BuildPart, claims: Path, config_maps: Path) -> Iterator[Found | DocumentFailure]:
    for source in part.corpus.sources:
        yield from read_source(source, claims, config_maps)
    if part.corpus.uploads is not None:
        yield from read_uploads(part.corpus.uploads, claims)


def _embed(models: Models, collected: Collected, store: Path, owner: str, watch: Watch) -> tuple[Collected, Embedded]:
    earlier = newest_made_by(store, models.encoder.fingerprint, owner)
    hashes = [passage_hash(passage) for passage in collected.passages]
    embedded = embed(models.encoder, collected.passages, hashes, earlier, watch.advance)
    if not embedded.bad:
        return collected, embedded
    left, kept = without(collected, embedded.bad)
    _need_chunks(left, sorted({document.source for document in collected.documents}))
    return left, Embedded(embedded.vectors[kept], (), min(embedded.reused, len(kept)))


def _need_chunks(collected: Collected, sources: list[str]) -> None:
    if not collected.texts:
        message = f"the corpus gave no chunk: {why_empty(collected, sources)}"
        raise StartError(Reason.EMPTY_INDEX, message)


def _contents(
    models: Models, part: BuildPart, collected: Collected, embedded: Embedded, structured: Structured
) -> Contents:
    tokens = models.chunk_tokens(collected.texts)
    return Contents(
        kind=part.kind,
        metric=part.metric,
        embedder=models.encoder.fingerprint,
        tokenizer=tokens.fingerprint,
        vocabulary=tokens.vocabulary,
        build=digest(part),
        recall=structured.recall,
        recall_questions=structured.questions,
        structure=structured.structure,
        ivfpq=part.ivfpq,
        hnsw=part.hnsw,
        vectors=embedded.vectors,
        texts=collected.texts,
        token_ids=tokens.ids,
        passages=[passage_hash(passage) for passage in collected.passages],
        places=collected.places,
        documents=collected.documents,
    )


def _report(
    snapshot: str, collected: Collected, reused: int, structured: Structured, seconds: dict[str, float]
) -> BuildReport:
    return BuildReport(
        snapshot=snapshot,
        documents=len(collected.documents),
        failed_documents=len(collected.failures),
        deleted_documents=collected.deleted,
        chunks=len(collected.texts),
        reused=reused,
        recall=structured.recall,
        recall_questions=structured.questions,
        failures=tuple(collected.failures),
        seconds=seconds,
    )
