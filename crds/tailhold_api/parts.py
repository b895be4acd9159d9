"""The two parts of a revision, what an index is built from, and what an edit changes."""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from tailhold_api.access import Limits, Tenant
from tailhold_api.audit import AuditSink, Recording
from tailhold_api.codec import digest
from tailhold_api.engine import Engine
from tailhold_api.fields import FieldClass, Model, field_class, part
from tailhold_api.index_kinds import HNSWStructure, IndexKind, IVFPQStructure, SearchParameters
from tailhold_api.observability import Observability
from tailhold_api.placement import Placement
from tailhold_api.pod import Pod
from tailhold_api.serving import Admission, Batching, Embedder, Generator, Prompt, Retrieval
from tailhold_api.sources import UPLOADS, Corpus, Metric, SnapshotSource, SnapshotStore, Uploads
from tailhold_api.spec import Program, Spec

SHORT = 10
"""Hex digits of a digest that stand in names: at a billion revisions the chance of two alike is under one in two
thousand, and each name is compared with the whole digest before it is used."""


class PodPart(Model):
    """What a pod is started with. A change makes new pods."""

    pipeline: str
    """Name of the RagPipeline, and the model id that clients may always use."""
    generator: Generator
    """The language model."""
    embedder: Embedder
    """The embedding model."""
    engine: Engine = part(Engine)
    """vLLM's settings."""
    placement: Placement = part(Placement)
    """Where the pod runs."""
    pod: Pod = part(Pod)
    """What the cluster's own rules ask of it."""
    server: Program = part(Program)
    """The serving program."""
    observability: Observability = part(Observability)
    """What the server says about itself."""
    store: SnapshotStore | None = None
    """Where index snapshots are loaded from that are built from the corpus."""
    snapshots: SnapshotSource | None = None
    """Where they are loaded from that were built elsewhere."""
    audit_sink: AuditSink | None = None
    """Where audit records are kept; none are without it."""
    uploads: Uploads | None = None
    """Where clients' documents go."""


class ContentPart(Model):
    """What running pods take without a restart."""

    snapshot: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the index snapshot."""
    retrieval: Retrieval = part(Retrieval)
    """What is looked up for each question."""
    search: SearchParameters = part(SearchParameters)
    """How the index is searched."""
    prompt: Prompt = part(Prompt)
    """How question and context become a prompt."""
    batching: Batching = part(Batching)
    """How questions are embedded and searched together."""
    admission: Admission = part(Admission)
    """When a question is refused."""
    recording: Recording = part(Recording)
    """What is recorded of an answer, where the pod has a sink."""
    limits: Limits = part(Limits)
    """How much one client may ask."""
    tenants: dict[str, Tenant] = Field(default={})
    """The tenant of each client that has a key."""
    open_to: dict[str, tuple[Tenant, ...]] = Field(default={})
    """By corpus source the tenants that it is open to; sources that are open to everybody are left out."""

    def closed_to(self, tenant: str) -> frozenset[str]:
        """The corpus sources that nothing may be told of; an empty tenant is none of any list."""
        return frozenset(source for source, tenants in self.open_to.items() if tenant not in tenants)


class BuildPart(Model):
    """What an index snapshot is built from. Equal parts give equal snapshots from equal documents."""

    corpus: Corpus
    """Documents and how they are cut."""
    embedder: Embedder
    """What makes the vectors."""
    generator: Generator
    """Its tokenizer: chunks are stored as its token ids too."""
    kind: IndexKind
    """How vectors are searched."""
    metric: Metric
    """How vectors are compared."""
    store: SnapshotStore
    """Where the snapshot is published."""
    ivfpq: IVFPQStructure | None = None
    """For `kind: IVFPQ` alone: what does not matter builds nothing anew."""
    hnsw: HNSWStructure | None = None
    """For `kind: HNSW` alone."""
    rebuild: str = ""
    """The value of the rebuild annotation, and a mark of the uploads: a new one builds again from the same spec."""


def pod_part(pipeline: str, spec: Spec) -> PodPart:
    """The pod part that a spec asks for."""
    return PodPart(
        pipeline=pipeline,
        generator=spec.generator,
        embedder=spec.embedder,
        engine=spec.engine,
        placement=spec.placement,
        pod=spec.pod,
        server=Program(**{name: getattr(spec.server, name) for name in Program.model_fields}),
        observability=spec.observability,
        store=spec.index.store,
        snapshots=spec.index.snapshot.source if spec.index.snapshot else None,
        audit_sink=spec.audit.sink,
        uploads=_pod_uploads(spec.uploads),
    )


def content_part(spec: Spec, snapshot: str) -> ContentPart:
    """The content part that a spec asks for, with the snapshot built for it."""
    return ContentPart(
        snapshot=snapshot,
        retrieval=spec.retrieval,
        search=spec.index.search,
        prompt=spec.prompt,
        batching=spec.batching,
        admission=spec.admission,
        limits=spec.server.limits,
        tenants=spec.server.tenants,
        open_to=_open_to(spec.corpus),
        recording=spec.audit.recording,
    )


def build_part(spec: Spec, rebuild: str = "") -> BuildPart | None:
    """What the spec's snapshot is built from; None where it is given."""
    if spec.corpus is None or spec.index.store is None:
        return None
    return BuildPart(
        corpus=_indexed(spec.corpus),
        embedder=spec.embedder,
        generator=spec.generator,
        kind=spec.index.kind,
        metric=spec.index.metric,
        store=spec.index.store,
        ivfpq=spec.index.ivfpq_structure,
        hnsw=spec.index.hnsw_structure,
        rebuild=rebuild,
    )


def _pod_uploads(uploads: Uploads | None) -> Uploads | None:
    """Without what reaches the running pods."""
    return uploads.model_copy(update={"tenants": ()}) if uploads else None


def _open_to(corpus: Corpus | None) -> dict[str, tuple[Tenant, ...]]:
    if corpus is None:
        return {}
    found = {each.name: each.tenants for each in corpus.sources if each.tenants}
    return found | ({UPLOADS: corpus.uploads.tenants} if corpus.uploads and corpus.uploads.tenants else {})


def _indexed(corpus: Corpus) -> Corpus:
    """Without what says nothing of documents: another limit or tenant is no reason to index anew."""
    sources = tuple(each.model_copy(update={"tenants": ()}) for each in corpus.sources)
    uploads = Uploads(pvc=corpus.uploads.pvc) if corpus.uploads else None
    bare = Corpus.model_fields["min_rebuild_seconds"].default
    return corpus.model_copy(update={"sources": sources, "uploads": uploads, "min_rebuild_seconds": bare})


def revision_name(pod_digest: str, content_digest: str) -> str:
    """What a revision is called wherever it is named: both digests, shortened."""
    return f"{pod_digest[:SHORT]}-{content_digest[:SHORT]}"


def short(model: BaseModel) -> str:
    """The digest as it stands in names."""
    return digest(model)[:SHORT]


class Change(NamedTuple):
    """One field that an edit changes."""

    path: str
    """From the spec's root, as in `engine.blockSizeTokens`."""
    old: Any
    new: Any
    field_class: FieldClass
    """What the change does to the running pods."""


def changes(old: Spec, new: Spec) -> tuple[Change, ...]:
    """Each field that differs, in the spec's order, with its class: the outermost class on the path holds, but for
    what is `live` in the entries of a list."""
    return tuple(_changes(old, new, ""))


def _changes(old: BaseModel, new: BaseModel, prefix: str) -> Iterator[Change]:
    for name, field in type(new).model_fields.items():
        before, after = _given(field, getattr(old, name)), _given(field, getattr(new, name))
        if before == after:
            continue
        path = f"{prefix}{field.alias}"
        known = field_class(type(new), name)
        if known is None and isinstance(before, BaseModel) and isinstance(after, BaseModel):
            yield from _changes(before, after, f"{path}.")
        elif lively := _live_in_entries(before, after, path):
            yield from lively
        else:
            yield Change(path, before, after, known or FieldClass.RESTART)


def _live_in_entries(old: Any, new: Any, path: str) -> list[Change]:
    """What differs between two lists whose entries differ in nothing but `live` fields; else nothing."""
    if not (isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new)):
        return []
    if not all(isinstance(each, Model) for each in (*old, *new)):
        return []
    found = [each for at, (a, b) in enumerate(zip(old, new, strict=True)) for each in _changes(a, b, f"{path}[{at}].")]
    return found if all(each.field_class is FieldClass.LIVE for each in found) else []


def _given(field: FieldInfo, value: Any) -> Any:
    """An optional block whose fields all have defaults is, left out, the block of defaults."""
    if value is not None:
        return value
    blocks = (each for each in get_args(field.annotation) if isinstance(each, type) and issubclass(each, Model))
    block = next(blocks, None)
    if block is None or any(inner.is_required() for inner in block.model_fields.values()):
        return None
    return block()
