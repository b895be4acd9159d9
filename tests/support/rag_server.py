"""A server with stand-ins, started as far as tests need it."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from tailhold_api import names
from tailhold_api.audit import Recording
from tailhold_api.engine import Engine
from tailhold_api.index_kinds import IndexKind
from tailhold_api.parts import ContentPart, PodPart
from tailhold_api.serving import Admission, Embedder, Generator, Prompt, Retrieval
from tailhold_api.sources import ClaimFolder, Metric, ModelSource, SnapshotStore, Uploads
from tailhold_api.variables import Variable
from tailhold_server.access.authentication import Authenticator
from tailhold_server.app import create_app, create_internal_app
from tailhold_server.backends import Backend
from tailhold_server.content import Index
from tailhold_server.errors import ContentRefusedError
from tailhold_server.observed import ObservedEngine
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.contents import Contents, Document, Place
from tailhold_server.snapshots.store import write_snapshot
from tailhold_server.stand_in.models import EMBEDDER, chunk_tokens
from tailhold_server.start import start_with
from tailhold_server.testing import (
    StandInDocument,
    StandInEncoder,
    StandInEngine,
    StandInTokenizer,
    stand_in_index,
)
from tailhold_server.uploads.folder import Folder

SNAPSHOT = "a" * 64
OTHER_SNAPSHOT = "b" * 64
DOCUMENTS = (
    StandInDocument("Hours", "The office closes at 18:00.", "https://example.org/hours"),
    StandInDocument("Badges", "Badges are renewed in May."),
)


def pod_part(*, uploads: bool = False, **engine: Any) -> PodPart:
    """A pod part that no model is loaded for."""
    return PodPart(
        pipeline="docs",
        generator=Generator(model=ModelSource(path="/models/none"), served_name="org/assistant"),
        embedder=Embedder(model=ModelSource(path="/models/none"), dimension=64),
        engine=Engine(**engine),
        store=SnapshotStore(claim_name="snapshots"),
        uploads=Uploads(pvc=ClaimFolder(claim_name="uploads"), max_file_mebibytes=1) if uploads else None,
    )


def stood_in(pod: PodPart, behaviour: str = "") -> PodPart:
    """The same, served by the stand-in engine as a manifest asks for it."""
    variable = Variable(name=names.STAND_IN_VARIABLE, value=behaviour)
    return pod.model_copy(update={"pod": pod.pod.model_copy(update={"env": (*pod.pod.env, variable)})})


def content_part(
    snapshot: str = SNAPSHOT,
    *,
    retrieval: Retrieval | None = None,
    prompt: Prompt | None = None,
    admission: Admission | None = None,
    recording: Recording | None = None,
) -> ContentPart:
    """Defaults, but for what a test is about."""
    return ContentPart(
        snapshot=snapshot,
        retrieval=retrieval or Retrieval(),
        prompt=prompt or Prompt(system="Cite the sources."),
        admission=admission or Admission(),
        recording=recording or Recording(),
    )


def store_snapshot(store: Path, documents: Sequence[StandInDocument] = DOCUMENTS) -> str:
    """A real snapshot on disk whose vectors and tokens are the stand-ins'."""
    texts = [each.text for each in documents]
    tokens = chunk_tokens(texts)
    contents = Contents(
        kind=IndexKind.FLAT,
        metric=Metric.COSINE,
        embedder=EMBEDDER,
        tokenizer=tokens.fingerprint,
        vocabulary=tokens.vocabulary,
        build="0" * 64,
        recall=1.0,
        vectors=StandInEncoder(64).encode(texts),
        texts=texts,
        token_ids=tokens.ids,
        passages=[hashlib.sha256(text.encode()).digest() for text in texts],
        places=[[Place(number, 0, len(text))] for number, text in enumerate(texts)],
        documents=[Document("notes", f"{each.title}.html", each.title, each.url) for each in documents],
    )
    return write_snapshot(store, contents)


@dataclass
class Running:
    """A started service and its parts."""

    service: Service
    engine: StandInEngine
    observed: ObservedEngine
    public: httpx.AsyncClient
    internal: httpx.AsyncClient
    settings: ServerSettings

    async def ask(self, content: Any = "When does the office close?", **fields: Any) -> httpx.Response:
        """One question; `content` is the user's."""
        return await self.public.post("/v1/chat/completions", json=body(content, **fields))


def body(content: Any = "When does the office close?", **fields: Any) -> dict[str, Any]:
    """A request's body."""
    return {"model": "docs", "messages": [{"role": "user", "content": content}]} | fields


def client_of(server: Running) -> openai.AsyncOpenAI:
    """The unmodified client of a server behind ASGI."""
    return openai.AsyncOpenAI(api_key="none", base_url="http://docs/v1", http_client=server.public, max_retries=0)


@asynccontextmanager
async def running(
    *,
    pod: PodPart | None = None,
    content: ContentPart | None = None,
    documents: Sequence[StandInDocument] = DOCUMENTS,
    engine: StandInEngine | None = None,
    encoder: StandInEncoder | None = None,
    settings: ServerSettings | None = None,
    other: Index | None = None,
    authenticator: Authenticator | None = None,
    folder: Path | None = None,
) -> AsyncIterator[Running]:
    """The whole server behind ASGI, no socket. With a folder it takes uploads there."""
    pod = pod or pod_part(uploads=folder is not None)
    settings = settings or ServerSettings()
    engine = engine or StandInEngine(running_limit=pod.engine.max_running_requests)
    indices = {SNAPSHOT: stand_in_index(documents, SNAPSHOT)} | ({OTHER_SNAPSHOT: other} if other else {})
    service = Service(
        pod,
        stall_seconds=settings.stall_seconds,
        patience_seconds=settings.patience_seconds,
        comment_seconds=settings.comment_seconds,
    )
    store = Path("/nonexistent") if folder is None else folder / "snapshots"
    uploads = Folder(folder / "uploads") if folder else None
    backend = Backend(lambda: encoder or StandInEncoder(), StandInTokenizer, _opener(indices), engine, store, uploads)
    started = await start_with(backend, service, content or content_part(), settings)
    public = httpx.ASGITransport(create_app(service, settings, authenticator), raise_app_exceptions=False)
    internal = httpx.ASGITransport(create_internal_app(service, settings), raise_app_exceptions=False)
    try:
        async with (
            httpx.AsyncClient(transport=public, base_url="http://docs") as one,
            httpx.AsyncClient(transport=internal, base_url="http://docs") as two,
        ):
            yield Running(service, engine, started.engine, one, two, settings)
    finally:
        await started.close()


def _opener(indices: dict[str, Index]) -> Any:
    def opener(snapshot: str) -> Index:
        if snapshot not in indices:
            raise ContentRefusedError(f"no snapshot {snapshot[:10]}")
        return indices[snapshot]

    return opener
