"""The spec of a RagPipeline."""

from typing import ClassVar

from tailhold_api.access import Auth, Http, InternalTls, Limits, Tenant, Tls
from tailhold_api.audit import Audit
from tailhold_api.delivery import Cache
from tailhold_api.engine import Engine
from tailhold_api.fields import Model, Rule, live, part, policy, restart
from tailhold_api.index_kinds import IVFPQ, MOST_CANDIDATES, Rescore
from tailhold_api.observability import Observability
from tailhold_api.placement import Placement
from tailhold_api.pod import Pod
from tailhold_api.rollout import Rollout
from tailhold_api.rpc import Grpc
from tailhold_api.serving import Admission, Batching, Embedder, Generator, Prompt, Retrieval
from tailhold_api.slo import Slo
from tailhold_api.sources import Corpus, Index, Uploads


class Program(Model):
    """How the serving program is started."""

    cache: Cache | None = None
    """Where fetched models are kept; each pod's own cache where it is not given."""
    image: str | None = restart(None, min_length=1, max_length=500)
    """Image of the server. The operator's default where it is not given. Prefer a digest: a tag may move under a
    running revision."""
    drain_seconds: int = restart(60, ge=1, le=3600)
    """How long a pod that is stopped goes on answering what it had accepted."""
    startup_seconds: int = restart(1800, ge=60, le=86400)
    """How long a start may take: fetching and loading weights, loading the index, warming up. Beyond it the pod is
    restarted."""
    public_url: str | None = restart(None, max_length=1000, pattern=r"^https?://[^ ?#]+$")
    """Where clients reach the pipeline from outside, as in `https://rag.example.com`. Citations of documents without a
    `baseUrl` link to the server's own copy below it; without it they are paths from the server's root."""
    http: Http = part(Http)
    """HTTP as clients meet it."""
    auth: Auth | None = None
    """Who may ask. Everybody who reaches the Service where it is not given."""
    tls: Tls | None = None
    """HTTPS. Plain HTTP where it is not given, for clusters whose mesh or gateway does it."""
    grpc: Grpc = part(Grpc)
    """The gRPC surface."""

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Secrets that are read while it serves."""
        keys = self.auth.api_keys if self.auth else None
        found = (
            keys.secret_name if keys else None,
            self.tls.secret_name if self.tls else None,
            self.tls.client_ca_secret_name if self.tls else None,
        )
        return tuple(each for each in found if each)

    @property
    def is_internal_tls(self) -> bool:
        """Whether TLS is spoken on the internal port too."""
        return self.tls is not None and self.tls.internal is InternalTls.ON


class Server(Program):
    """The serving program, and what of it reaches the running pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.tenants.size() == 0 || (has(self.auth) && has(self.auth.apiKeys))",
            "`tenants` is for `auth.apiKeys`: with `auth.oidc` the tenant comes from `tenantClaim`, without `auth`"
            " there are no clients",
            {"auth": {"apiKeys": {"secretName": "clients"}}, "tenants": {"ada": "risk"}},
            {"tenants": {"ada": "risk"}},
        ),
    )

    limits: Limits = part(Limits)
    """How much one client may ask."""
    tenants: dict[str, Tenant] = live({}, max_length=1000)
    """The tenant of each client of `auth.apiKeys`, by the name of its key. A client without one sees what is open to
    everybody."""


class Spec(Model):
    """What a RAG service is made of and what it promises."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.corpus) != has(self.index.snapshot)",
            "exactly one of `corpus` and `index.snapshot` must be given: `corpus` with `index.store` builds an index,"
            " `index.snapshot` takes one that was built elsewhere",
            {"corpus": {"sources": [{"name": "a", "configMap": {"name": "a"}}]}},
            {"index": {"snapshot": {"source": {"path": "/indexes"}, "digest": "0" * 64}}},
        ),
        Rule(
            "self.engine.tensorParallel <= (self.placement.gpu.count == 0 ? 1 : self.placement.gpu.count)",
            "`engine.tensorParallel` must be at most `placement.gpu.count`: raise the count, or lower it",
            {"engine": {"tensorParallel": 2}, "placement": {"gpu": {"count": 2}}},
            {"engine": {"tensorParallel": 2}, "placement": {"gpu": {"count": 1}}},
        ),
        Rule(
            "self.placement.gpu.count > 0 || self.engine.blockSizeTokens % 32 == 0",
            "`engine.blockSizeTokens` must be a multiple of 32 when `placement.gpu.count` is 0: so the CPU build",
            {"engine": {"blockSizeTokens": 64}, "placement": {"gpu": {"count": 0}}},
            {"engine": {"blockSizeTokens": 16}, "placement": {"gpu": {"count": 0}}},
        ),
        Rule(
            "self.placement.gpu.count > 0 || (!has(self.engine.gpuMemoryFraction)"
            " && self.engine.kvOffloadMebibytes == 0 && self.engine.attentionBackend == 'Auto'"
            " && self.engine.compile.cudaGraphs.mode in ['Auto', 'None'])",
            "`engine` may not give `gpuMemoryFraction`, `kvOffloadMebibytes`, `attentionBackend` or"
            " `compile.cudaGraphs` when `placement.gpu.count` is 0: they are for GPUs",
            {"engine": {"attentionBackend": "Triton"}, "placement": {"gpu": {"count": 1}}},
            {"engine": {"attentionBackend": "Triton"}, "placement": {"gpu": {"count": 0}}},
        ),
        Rule(
            "self.engine.kvOffloadMebibytes + self.placement.sharedMemoryMebibytes < self.placement.memoryMebibytes",
            "`engine.kvOffloadMebibytes` and `placement.sharedMemoryMebibytes` together must be less than"
            " `placement.memoryMebibytes`: they are parts of it",
            {
                "engine": {"kvOffloadMebibytes": 1024},
                "placement": {"sharedMemoryMebibytes": 1024, "memoryMebibytes": 4096},
            },
            {
                "engine": {"kvOffloadMebibytes": 0},
                "placement": {"sharedMemoryMebibytes": 4096, "memoryMebibytes": 4096},
            },
        ),
        Rule(
            "self.retrieval.contextTokens < self.engine.maxModelTokens",
            "`retrieval.contextTokens` must be less than `engine.maxModelTokens`: question and answer need room too",
            {"retrieval": {"contextTokens": 1024}, "engine": {"maxModelTokens": 2048}},
            {"retrieval": {"contextTokens": 2048}, "engine": {"maxModelTokens": 2048}},
        ),
        Rule(
            "self.prompt.maxAnswerTokens < self.engine.maxModelTokens",
            "`prompt.maxAnswerTokens` must be less than `engine.maxModelTokens`: lower it, or raise `maxModelTokens`",
            {"prompt": {"maxAnswerTokens": 256}, "engine": {"maxModelTokens": 2048}},
            {"prompt": {"maxAnswerTokens": 2048}, "engine": {"maxModelTokens": 2048}},
        ),
        Rule(
            "!has(self.prompt.maxPromptTokens) || self.prompt.maxPromptTokens < self.engine.maxModelTokens",
            "`prompt.maxPromptTokens` must be less than `engine.maxModelTokens`: the answer needs room too",
            {"prompt": {"maxPromptTokens": 1536}, "engine": {"maxModelTokens": 2048}},
            {"prompt": {"maxPromptTokens": 2048}, "engine": {"maxModelTokens": 2048}},
        ),
        Rule(
            "!has(self.corpus) || self.corpus.chunking.maxTokens + 2 <= self.embedder.maxTokens",
            "`corpus.chunking.maxTokens` must be at most `embedder.maxTokens` - 2: the two special tokens count too",
            {"corpus": {"chunking": {"maxTokens": 200}}, "embedder": {"maxTokens": 256}},
            {"corpus": {"chunking": {"maxTokens": 255}}, "embedder": {"maxTokens": 256}},
        ),
        Rule(
            "self.index.kind != 'IVFPQ' || self.embedder.dimension % "
            f"(has(self.index.ivfpq) ? self.index.ivfpq.subquantizers : {IVFPQ().subquantizers}) == 0",
            "`embedder.dimension` must be a multiple of `index.ivfpq.subquantizers`,"
            f" {IVFPQ().subquantizers} where it is not given: choose a divisor of the dimension",
            {"index": {"kind": "IVFPQ", "ivfpq": {"subquantizers": 48}}, "embedder": {"dimension": 384}},
            {"index": {"kind": "IVFPQ", "ivfpq": {"subquantizers": 50}}, "embedder": {"dimension": 384}},
        ),
        Rule(
            "self.index.kind != 'IVFPQ' || self.retrieval.topK * "
            f"(has(self.index.rescore) ? self.index.rescore.factor : {Rescore().factor}) <= {MOST_CANDIDATES}",
            f"`retrieval.topK` x `index.rescore.factor` must be at most {MOST_CANDIDATES}, FAISS's limit on a GPU:"
            " lower one of them",
            {"index": {"kind": "IVFPQ", "rescore": {"factor": 20}}, "retrieval": {"topK": 100}},
            {"index": {"kind": "IVFPQ", "rescore": {"factor": 21}}, "retrieval": {"topK": 100}},
        ),
        Rule(
            "!has(self.corpus) || (!self.corpus.sources.exists(each, each.tenants.size() > 0)"
            " && (!has(self.corpus.uploads) || self.corpus.uploads.tenants.size() == 0)) || has(self.server.auth)",
            "`corpus.sources` and `corpus.uploads` may have `tenants` only with `server.auth`: nobody has one without",
            {
                "corpus": {"sources": [{"name": "a", "configMap": {"name": "a"}, "tenants": ["risk"]}]},
                "server": {"auth": {"apiKeys": {"secretName": "clients"}}},
            },
            {"corpus": {"sources": [{"name": "a", "configMap": {"name": "a"}, "tenants": ["risk"]}]}},
        ),
        Rule(
            "!has(self.audit.sink) || (self.audit.sink.pvc.claimName != self.index.store.claimName"
            + "".join(
                f" && (!has(self.{each}.model.pvc) || self.{each}.model.pvc.claimName != self.audit.sink.pvc.claimName)"
                for each in ("generator", "embedder")
            )
            + ")",
            "`audit.sink.pvc.claimName` must be a claim of its own, neither that of a model nor of the index: pods may"
            " write to it",
            {"audit": {"sink": {"pvc": {"claimName": "audit"}}}},
            {"audit": {"sink": {"pvc": {"claimName": "snapshots"}}}},
        ),
    )

    replicas: int = policy(1, ge=0, le=1000)
    """Pods of the revision that serves. Leave it out where an autoscaler owns it; take it out of a manifest only once
    the autoscaler has set it, since a number that nobody sets falls back to 1."""
    generator: Generator
    """The language model that writes the answer."""
    embedder: Embedder
    """The model that turns questions and passages into vectors."""
    index: Index
    """The vector index."""
    corpus: Corpus | None = None
    """The documents that answers are drawn from. Left out where `index.snapshot` is given."""
    retrieval: Retrieval = part(Retrieval)
    """What is looked up for each question."""
    prompt: Prompt = part(Prompt)
    """How question and context become a prompt."""
    engine: Engine = part(Engine)
    """vLLM's settings."""
    batching: Batching = part(Batching)
    """How questions that arrive together are embedded and searched together."""
    admission: Admission = part(Admission)
    """When a question is refused rather than queued."""
    placement: Placement = part(Placement)
    """Where a pod runs and what it owns there."""
    pod: Pod = part(Pod)
    """What the cluster's own rules ask of the serving pods."""
    slo: Slo = part(Slo)
    """What the pipeline promises."""
    rollout: Rollout = part(Rollout)
    """How a new revision replaces the one that serves."""
    server: Server = part(Server)
    """The serving program."""
    observability: Observability = part(Observability)
    """What the server says about itself."""
    audit: Audit = part(Audit)
    """What is kept of each answer."""
    paused: bool = policy(False)
    """Stop changing anything. What serves goes on serving, and status is kept up to date."""

    @property
    def uploads(self) -> Uploads | None:
        """Where clients' documents go, on a pipeline that takes any."""
        return self.corpus.uploads if self.corpus else None
