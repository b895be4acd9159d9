"""Where models and documents come from."""

from enum import StrEnum
from typing import ClassVar, TypeVar

from tailhold_api.access import Tenant
from tailhold_api.delivery import HuggingFaceModel, ImageFolder, ObjectStoreFolder
from tailhold_api.fields import Model, Rule, live, part, policy, reload, restart
from tailhold_api.grammar import WITHIN, Glob, once, one_of
from tailhold_api.index_kinds import (
    HNSW,
    IVFPQ,
    HNSWStructure,
    IndexKind,
    IVFPQStructure,
    Rescore,
    SearchParameters,
)

Part = TypeVar("Part", bound=Model)

_ONE_CORPUS_SOURCE = "[has(self.pvc), has(self.configMap), has(self.archive)].filter(x, x).size() == 1"


class ClaimFolder(Model):
    """A folder on a persistent volume claim in the pipeline's namespace."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            r"!self.path.matches('(^|/)\\.\\.(/|$)')",
            "`path` may not have `..`: name a folder within the claim",
            {"claimName": "models", "path": "a/..b"},
            {"claimName": "models", "path": "a/../b"},
        ),
    )

    claim_name: str = restart(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """The claim's name. Pods on more than one node need a claim that can be mounted by all (ReadOnlyMany or
    ReadWriteMany)."""
    path: str = restart(".", **WITHIN)
    """Folder within the claim, relative to its root, without `..`."""


class ModelSource(Model):
    """Where a model's files are. Exactly one of the fields is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "huggingFace",
            "pvc",
            "image",
            "objectStore",
            "path",
            accepted={"pvc": {"claimName": "models", "path": "smollm2"}},
            refused={"pvc": {"claimName": "models"}, "path": "/models/smollm2"},
        ),
    )

    hugging_face: HuggingFaceModel | None = None
    """From the hub or a mirror of it, fetched at start. Needs the network at each start without `server.cache`."""
    pvc: ClaimFolder | None = None
    """From a persistent volume claim, mounted read-only. No network is needed."""
    image: ImageFolder | None = None
    """From an image, mounted by kubelet. Needs a cluster that can."""
    object_store: ObjectStoreFolder | None = None
    """From an object store, fetched at start. Needs the network at each start without `server.cache`."""
    path: str | None = restart(None, min_length=2, max_length=500, pattern=r"^/.*$")
    """A folder inside the server's image, for images that carry their model."""

    @property
    def is_fetched(self) -> bool:
        """Whether its files come over the network before a pod can serve."""
        return self.hugging_face is not None or self.object_store is not None


class ConfigMapDocuments(Model):
    """Documents in a ConfigMap of the pipeline's namespace: each key is a file."""

    name: str = reload(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """The ConfigMap's name."""


class ArchiveDocuments(Model):
    """A zip or tar archive fetched over http or https."""

    url: str = reload(max_length=2000, pattern=r"^https?://[^ ]+$")
    """Where the archive is."""
    sha256: str = reload(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}$")
    """Digest of the archive's bytes. An archive that differs is refused: what is indexed is what was reviewed."""


class CorpusSource(Model):
    """One place that documents come from. Exactly one of `pvc`, `configMap` and `archive` is given. Only the spec is
    watched, not the documents: set the pipeline's annotation `tailhold.dev/rebuild` to a new value when they change."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            _ONE_CORPUS_SOURCE,
            "exactly one of `pvc`, `configMap` and `archive` must be given",
            {"name": "handbook", "configMap": {"name": "handbook"}},
            {"name": "handbook", "configMap": {"name": "handbook"}, "pvc": {"claimName": "documents"}},
        ),
    )

    name: str = reload(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    """Names the source in citations and in the Job's report; unique in the list."""
    pvc: ClaimFolder | None = None
    """A folder on a persistent volume claim, read recursively. Changed files, or another volume behind the claim, are
    not noticed by themselves: set the annotation `tailhold.dev/rebuild` to a new value to index them."""
    config_map: ConfigMapDocuments | None = None
    """A ConfigMap whose keys are files. At most 1 MiB by Kubernetes' own limit. Changed keys are not noticed by
    themselves: set the annotation `tailhold.dev/rebuild` to a new value to index them."""
    archive: ArchiveDocuments | None = None
    """An archive behind a URL."""
    include: tuple[Glob, ...] = reload(
        ("**/*.html", "**/*.htm", "**/*.md", "**/*.txt", "**/*.pdf"), min_length=1, max_length=20
    )
    """Glob patterns of the files to read, relative to the source's root."""
    exclude: tuple[Glob, ...] = reload((), max_length=20)
    """Glob patterns of the files to leave out; wins over `include`."""
    base_url: str | None = reload(None, max_length=1000, pattern=r"^https?://[^ ]+/$")
    """Where readers find these documents: citations link to this plus the file's path. Without it they link to
    the server's own copy of the chunk."""
    tenants: tuple[Tenant, ...] = live((), max_length=100)
    """Tenants that these documents are open to; everybody where it is empty. A question of another tenant is answered
    as if they were not indexed: the search itself leaves them out. A text that stands in several sources is open to
    those of each. A change builds nothing: it reaches the running pods."""


UPLOADS = "uploads"
"""The source that uploaded documents belong to, in citations and filters."""


class Uploads(Model):
    """Documents that clients upload through `/v1/files` and add with `/v1/vector_stores/{id}/files`."""

    pvc: ClaimFolder
    """A folder on a persistent volume claim that the serving pods write and the index Job reads. Pods on more than one
    node need a claim that all can write (ReadWriteMany); several pods share it without locks."""
    max_file_mebibytes: int = restart(64, ge=1, le=512)
    """Largest file, refused with 413 beyond. It is written to the claim as it comes and never held in memory; the index
    Job holds one file at a time, within `index.buildMemoryMebibytes`."""
    max_files: int = restart(10000, ge=1, le=100000)
    """Most files, refused beyond. Each look at the folder reads all names: more of them take longer to notice."""
    tenants: tuple[Tenant, ...] = live((), max_length=100)
    """Tenants that uploads are open to: they alone may upload, see and delete them, and are answered from them.
    Everybody where it is empty."""


class Chunking(Model):
    """How documents are cut into the passages that are searched."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.overlapTokens * 2 <= self.maxTokens",
            "`overlapTokens` must be at most half of `maxTokens`: lower it, or raise `maxTokens`",
            {"maxTokens": 200, "overlapTokens": 40},
            {"maxTokens": 64, "overlapTokens": 40},
        ),
    )

    max_tokens: int = reload(200, ge=32, le=8192)
    """Longest chunk in tokens of the embedder. Longer chunks carry more context each and cost more prefill time."""
    overlap_tokens: int = reload(20, ge=0, le=2048)
    """Tokens repeated between neighbouring chunks, so that a sentence on the border is whole in one of them."""


class Corpus(Model):
    """The documents that answers are drawn from. A change builds a new snapshot and restarts nothing."""

    rules: ClassVar[tuple[Rule, ...]] = (
        once(
            "sources",
            "name",
            accepted={"sources": [{"name": each, "configMap": {"name": each}} for each in ("a", "b")]},
            refused={"sources": [{"name": "a", "configMap": {"name": each}} for each in ("a", "b")]},
        ),
        Rule(
            f"!has(self.uploads) || !self.sources.exists(each, each.name == '{UPLOADS}')",
            f"`sources` may have no source of the name `{UPLOADS}` beside `uploads`: call it something else",
            {"sources": [{"name": "a", "configMap": {"name": "a"}}], "uploads": {"pvc": {"claimName": "uploads"}}},
            {"sources": [{"name": UPLOADS, "configMap": {"name": "a"}}], "uploads": {"pvc": {"claimName": "uploads"}}},
        ),
    )

    sources: tuple[CorpusSource, ...] = reload(min_length=1, max_length=32)
    """Where the documents come from. One source that yields nothing does not stop the others; a corpus without a
    single chunk is refused and what serves stays."""
    uploads: Uploads | None = None
    """Where documents go that clients upload. Without it `/v1/files` answers that this pipeline takes none. Beside it
    `sources` still needs one source, so that there is an index to begin with."""
    min_rebuild_seconds: int = policy(300, ge=10, le=604800)
    """Least time between two index builds for uploads and deletions: what comes meanwhile goes into the next one. Less
    makes a document findable sooner and keeps a Job running; a deletion holds at once in any case."""
    chunking: Chunking = part(Chunking)
    """How documents are cut."""


class Metric(StrEnum):
    """How vectors are compared; higher scores are better."""

    COSINE = "Cosine"
    INNER_PRODUCT = "InnerProduct"


class SnapshotStore(Model):
    """Where index snapshots are published and loaded from."""

    claim_name: str = restart(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    """Persistent volume claim in the pipeline's namespace. The index Job writes it, pods mount it read-only. Pods on
    more than one node need a claim that can be mounted by all."""


class SnapshotSource(Model):
    """Where ready snapshots are: a folder or prefix in which each is a folder named by its digest, as `snapshots/` is
    on a claim that index Jobs write. Exactly one of the fields is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "pvc",
            "image",
            "objectStore",
            "path",
            accepted={"objectStore": {"url": "s3://indexes/handbook"}},
            refused={"objectStore": {"url": "s3://indexes/handbook"}, "path": "/indexes"},
        ),
    )

    pvc: ClaimFolder | None = None
    """On a persistent volume claim, mounted read-only."""
    image: ImageFolder | None = None
    """In an image, mounted by kubelet."""
    object_store: ObjectStoreFolder | None = None
    """In an object store; fetched once for each digest."""
    path: str | None = restart(None, min_length=2, max_length=500, pattern=r"^/.*$")
    """A folder inside the server's image."""


class PinnedSnapshot(Model):
    """One snapshot that was built elsewhere. No index Job runs for it."""

    source: SnapshotSource
    """Where it is."""
    digest: str = reload(min_length=64, max_length=64, pattern=r"^[0-9a-f]{64}$")
    """Its name, and the SHA-256 of its manifest, which has the SHA-256 of each of its files: what differs in a single
    bit is refused. Another digest from the same source is loaded by the running pods."""


class Index(Model):
    """The vector index: built from `corpus` and kept in `store`, or given as `snapshot`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.store) != has(self.snapshot)",
            "exactly one of `store` and `snapshot` must be given: `store` for an index that is built from `corpus`,"
            " `snapshot` for one that was built elsewhere",
            {"store": {"claimName": "snapshots"}},
            {
                "store": {"claimName": "snapshots"},
                "snapshot": {"source": {"path": "/indexes"}, "digest": "0" * 64},
            },
        ),
        Rule(
            "self.kind != 'CAGRA'",
            "`kind: CAGRA` needs a GPU build of FAISS that cannot live beside the engine: use `HNSW`",
            {"kind": "HNSW"},
            {"kind": "CAGRA"},
        ),
        Rule(
            "!has(self.ivfpq) || self.kind == 'IVFPQ'",
            "`ivfpq` is for `kind: IVFPQ`: set the kind, or leave the block out",
            {"kind": "IVFPQ", "ivfpq": {"lists": 256}},
            {"kind": "HNSW", "ivfpq": {"lists": 256}},
        ),
        Rule(
            "!has(self.ivfpq) || self.ivfpq.probes <= self.ivfpq.lists",
            "`ivfpq.probes` must be at most `ivfpq.lists`: there are no more lists to read",
            {"kind": "IVFPQ", "ivfpq": {"lists": 256, "probes": 16}},
            {"kind": "IVFPQ", "ivfpq": {"lists": 16, "probes": 32}},
        ),
        Rule(
            "!has(self.hnsw) || self.kind == 'HNSW'",
            "`hnsw` is for `kind: HNSW`: set the kind, or leave the block out",
            {"kind": "HNSW", "hnsw": {"neighbours": 16}},
            {"kind": "Flat", "hnsw": {"neighbours": 16}},
        ),
        Rule(
            "!has(self.rescore) || self.kind == 'IVFPQ'",
            "`rescore` is for `kind: IVFPQ`: the other kinds compare whole vectors, leave the block out",
            {"kind": "IVFPQ", "rescore": {"factor": 20}},
            {"kind": "HNSW", "rescore": {"factor": 20}},
        ),
    )

    kind: IndexKind = reload(IndexKind.FLAT)
    """`Flat` compares the question with every vector: exact, nothing to tune, memory 4 bytes x dimension x chunks.
    `HNSW` walks a graph over whole vectors: fast on a CPU at high recall, the most memory and the longest build.
    `IVFPQ` reads short codes of the nearest lists and re-scores the best exactly: the least memory. `CAGRA` is refused
    today. A change builds a new snapshot."""
    ivfpq: IVFPQ | None = None
    """Parameters of `kind: IVFPQ`, refused beside any other. The defaults where it is left out."""
    hnsw: HNSW | None = None
    """Parameters of `kind: HNSW`, refused beside any other. The defaults where it is left out."""
    rescore: Rescore | None = None
    """Exact scores for the candidates of `kind: IVFPQ`, refused beside any other. The defaults where it is left out."""
    metric: Metric = reload(Metric.COSINE)
    """`Cosine` normalises vectors at both ends."""
    store: SnapshotStore | None = None
    """Where snapshots live that are built from `corpus`."""
    snapshot: PinnedSnapshot | None = None
    """A snapshot that was built elsewhere, in place of `store` and `corpus`."""
    build_memory_mebibytes: int = policy(4096, ge=256, le=1048576)
    """Memory of the index Job, requested and limit. Holds from the next Job on: a build that failed for want of memory
    is tried again with a new value of the annotation `tailhold.dev/rebuild`."""
    build_millicores: int = policy(500, ge=100, le=512000)
    """CPU of the index Job: what it asks the scheduler for. It takes more where more is free, up to 4 cores, or to one
    core beyond what it asks for. More shortens the build on a busy node. Holds from the next Job on."""
    keep_snapshots: int = policy(3, ge=1, le=50)
    """Snapshots kept on the volume beside the new one when an index is built; those that serve, and those that a
    rollback needs, are kept whatever their number. Holds from the next build on: a change alone builds nothing."""

    @property
    def ivfpq_structure(self) -> IVFPQStructure | None:
        """What the chosen kind is built of, None where it is no IVFPQ."""
        if self.kind is not IndexKind.IVFPQ:
            return None
        return _of(IVFPQStructure, self.ivfpq or IVFPQ())

    @property
    def hnsw_structure(self) -> HNSWStructure | None:
        """What the chosen kind is built of, None where it is no HNSW."""
        if self.kind is not IndexKind.HNSW:
            return None
        return _of(HNSWStructure, self.hnsw or HNSW())

    @property
    def search(self) -> SearchParameters:
        """What a search of the chosen kind is told."""
        if self.kind is IndexKind.IVFPQ:
            factor = (self.rescore or Rescore()).factor
            return SearchParameters(probes=(self.ivfpq or IVFPQ()).probes, rescore_factor=factor)
        if self.kind is IndexKind.HNSW:
            return SearchParameters(ef_search=(self.hnsw or HNSW()).ef_search)
        return SearchParameters()


def _of(structure: type[Part], block: Model) -> Part:
    return structure(**{name: getattr(block, name) for name in structure.model_fields})
