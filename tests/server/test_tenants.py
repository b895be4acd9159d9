"""What is open to whom: left out by the search itself, and told nowhere else."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_process import free_port
from rag_server import DOCUMENTS, SNAPSHOT, Running, body, content_part, running

from tailhold_api.access import Limits
from tailhold_api.parts import ContentPart
from tailhold_api.rpc import Grpc
from tailhold_api.serving import Prompt, Retrieval
from tailhold_server.access.bearer import unauthenticated
from tailhold_server.access.caller import Caller
from tailhold_server.app import create_app
from tailhold_server.content import Content
from tailhold_server.retriever import Lookup, Retriever
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.server import RpcServer
from tailhold_server.snapshots import manifest as names
from tailhold_server.snapshots.contents import Document
from tailhold_server.snapshots.read import StoredChunks
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInTokenizer, stand_in_index

OPEN_TO = {"risk": ("risk", "audit"), "board": ("audit",)}
LIBRARY = (
    StandInDocument("Hours", "The office closes at 18:00.", sources=("handbook",)),
    StandInDocument("Limits", "The risk limit is 7 millions.", sources=("risk",)),
    StandInDocument("Merger", "The board plans a merger in May.", sources=("board",)),
    StandInDocument("Rules", "The risk rules are these.", sources=("board", "risk")),
)
SEEN_BY = {"": {0}, "sales": {0}, "risk": {0, 1, 3}, "audit": {0, 1, 2, 3}}


class ByName:
    """Each token is a client of the tenant of its name; `nobody` is refused."""

    async def caller(self, token: str) -> Caller:
        if token == "nobody":
            raise unauthenticated("nobody")
        return Caller(token, "" if token == "none" else token)


def opened(**fields: Any) -> ContentPart:
    told = content_part(retrieval=Retrieval(top_k=4), prompt=Prompt(system="s"))
    return told.model_copy(update={"open_to": OPEN_TO} | fields)


@asynccontextmanager
async def library(**fields: Any) -> AsyncIterator[Running]:
    async with running(content=opened(**fields), documents=LIBRARY, authenticator=ByName()) as server:
        yield server


async def asked(server: Running, tenant: str, question: str = "What is the risk limit?") -> dict[str, Any]:
    headers = {"authorization": f"Bearer {tenant or 'none'}"}
    answer = await server.public.post("/v1/chat/completions", json=body(question), headers=headers)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(("tenant", "seen"), SEEN_BY.items())
async def test_a_tenant_sees_what_is_open_to_it_in_sources_and_prompt(tenant: str, seen: set[int]) -> None:
    async with library() as server:
        answer = await asked(server, tenant)
        prompt = StandInTokenizer().decode(server.engine.prompts[-1])
    assert {each["text"] for each in answer["tailhold"]["sources"]} == {LIBRARY[at].text for at in seen}
    for at, document in enumerate(LIBRARY):
        assert (document.text in prompt) == (at in seen)


async def test_the_tenant_is_the_callers_whatever_the_request_says() -> None:
    async with library() as server:
        headers = {"authorization": "Bearer sales", "x-tenant": "audit", "openai-organization": "audit"}
        said = body(user="audit", safety_identifier="audit", metadata={"tenant": "audit"}, prompt_cache_key="audit")
        answer = await server.public.post("/v1/chat/completions", json=said, headers=headers)
        assert [each["text"] for each in answer.json()["tailhold"]["sources"]] == [LIBRARY[0].text]
        assert server.engine.salts[-1] == "sales"


async def test_prompts_are_kept_apart_by_tenant() -> None:
    async with library() as server:
        for tenant in ("risk", "audit", ""):
            await asked(server, tenant)
    assert list(server.engine.salts) == ["", "risk", "audit", ""]


async def test_a_text_in_two_sources_is_cited_where_it_is_open() -> None:
    async with library() as server:
        risk, audit = [await asked(server, tenant, "The risk rules") for tenant in ("risk", "audit")]
        keys = {}
        for name, answer in (("risk", risk), ("audit", audit)):
            (found,) = [each for each in answer["tailhold"]["sources"] if each["title"] == "Rules"]
            keys[name] = found["key"]
        assert keys["risk"] != keys["audit"]
        shown = {
            (tenant, key): (
                await server.public.get(f"/v1/sources/{keys[key]}", headers={"authorization": f"Bearer {tenant}"})
            )
            for tenant in ("risk", "audit", "sales")
            for key in keys
        }
    assert {each for each, answer in shown.items() if answer.status_code == 200} == {
        ("risk", "risk"), ("audit", "audit"), ("audit", "risk")
    }  # fmt: skip
    assert shown["risk", "risk"].json()["source"] == "risk"
    assert shown["audit", "audit"].json()["source"] == "board"
    assert shown["risk", "audit"].json() == shown["sales", "risk"].json(), "as if it were not there"


async def test_a_source_is_closed_and_opened_without_a_restart_or_an_index() -> None:
    async with library() as server:
        before = server.service.contents.current
        assert len((await asked(server, "risk"))["tailhold"]["sources"]) == 3
        closed = server.service.contents.load(opened(open_to={"risk": ("audit",), "board": ("audit",)}))
        server.service.put_content(closed)
        assert closed.index is before.index
        assert len((await asked(server, "risk"))["tailhold"]["sources"]) == 1


async def get(server: Running, tenant: str, path: str) -> httpx.Response:
    return await server.public.get(path, headers={"authorization": f"Bearer {tenant or 'none'}"})


async def searched(server: Running, tenant: str, **fields: Any) -> list[dict[str, Any]]:
    asked = {"query": "What is the risk limit?", "max_num_results": 4} | fields
    headers = {"authorization": f"Bearer {tenant or 'none'}"}
    found = await server.public.post("/v1/vector_stores/vs_docs/search", json=asked, headers=headers)
    assert found.status_code == 200, found.text
    return list(found.json()["data"])


@pytest.mark.parametrize(("tenant", "seen"), SEEN_BY.items())
async def test_a_search_without_an_answer_is_filtered_alike(tenant: str, seen: set[int]) -> None:
    async with library() as server:
        hits = await searched(server, tenant)
    assert {each["content"][0]["text"] for each in hits} == {LIBRARY[at].text for at in seen}
    closed = content_part().model_copy(update={"open_to": OPEN_TO}).closed_to(tenant)
    assert not {each["attributes"]["source"] for each in hits} & closed


async def test_a_filter_answers_nothing_about_what_is_closed() -> None:
    """A text that stands in a closed source too is judged by the source that is shown."""
    async with library() as server:
        of_board = {"type": "eq", "key": "source", "value": "board"}
        not_of_board = {"type": "ne", "key": "source", "value": "board"}
        assert await searched(server, "risk", filters=of_board) == []
        assert len(await searched(server, "risk", filters=not_of_board)) == 3
        assert len(await searched(server, "audit", filters=of_board)) == 2


@pytest.mark.parametrize(("tenant", "seen"), SEEN_BY.items())
async def test_documents_are_listed_and_read_where_they_are_open(tenant: str, seen: set[int]) -> None:
    files = "/v1/vector_stores/vs_docs/files"
    async with library() as server:
        every = (await get(server, "audit", files)).json()["data"]
        listed = (await get(server, tenant, files)).json()["data"]
        counts = (await get(server, tenant, "/v1/vector_stores/vs_docs")).json()["file_counts"]
        codes = {
            each["id"]: [
                (await get(server, tenant, f"{files}/{each['id']}{end}")).status_code for end in ("", "/content")
            ]
            for each in every
        }
    assert {each["attributes"]["title"] for each in listed} <= {LIBRARY[at].title for at in seen}
    assert counts["total"] == len(listed)
    open_ids = {each["id"] for each in listed}
    assert all(found == ([200, 200] if name in open_ids else [404, 404]) for name, found in codes.items())


async def test_uploads_may_be_for_some_tenants_alone(tmp_path: Path) -> None:
    part = content_part().model_copy(update={"open_to": {"uploads": ("risk",)}})
    async with running(content=part, authenticator=ByName(), folder=tmp_path) as server:
        for tenant, status in (("risk", 200), ("sales", 403), ("", 403)):
            assert (await get(server, tenant, "/v1/files")).status_code == status
            files = {"file": ("notes.md", b"# Notes"), "purpose": (None, "assistants")}
            headers = {"authorization": f"Bearer {tenant or 'none'}"}
            sent = await server.public.post("/v1/files", files=files, headers=headers)
            assert sent.status_code == status
        name = (await get(server, "risk", "/v1/files")).json()["data"][0]["id"]
        store, headers = "/v1/vector_stores/vs_docs", {"authorization": "Bearer sales"}
        for method, path in (
            ("GET", f"/v1/files/{name}/content"),
            ("DELETE", f"/v1/files/{name}"),
            ("POST", f"{store}/files"),
            ("DELETE", f"{store}/files/{name}"),
            ("POST", f"{store}/file_batches"),
        ):
            refused = await server.public.request(method, path, headers=headers, json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "tenant_forbidden"), path


async def test_no_route_is_open_without_a_key() -> None:
    """Whatever routes there are."""
    async with library() as server:
        app: Any = create_app(server.service, server.settings, ByName())
        routes = [(method, route.path) for route in app.routes for method in route.methods]
        assert len(routes) > 20
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://docs") as client:
            for method, path in routes:
                answer = await client.request(method, re.sub(r"[{][^}]*[}]", "x", path))
                assert answer.status_code == 401, (method, path)


async def test_searches_and_embeddings_are_requests_too() -> None:
    told = content_part().model_copy(update={"limits": Limits(requests_per_minute=2)})
    async with running(content=told) as server:
        embedded = await server.public.post("/v1/embeddings", json={"input": "When?"})
        found = await server.public.post("/v1/vector_stores/vs_docs/search", json={"query": "When?"})
        refused = [
            await server.public.post("/v1/embeddings", json={"input": "When?"}),
            await server.public.post("/v1/vector_stores/vs_docs/search", json={"query": "When?"}),
            await server.ask(),
        ]
    assert (embedded.status_code, found.status_code) == (200, 200)
    assert [each.status_code for each in refused] == [429] * 3
    assert {each.json()["error"]["code"] for each in refused} == {"rate_limit_exceeded"}


async def test_grpc_has_the_same_callers() -> None:
    async with library() as server:
        rpc, port = RpcServer(server.service, Grpc(), ByName()), free_port()
        await rpc.start("127.0.0.1", port)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                ask = channel.unary_stream(
                    "/tailhold.v1.Rag/Ask", api.AskRequest.SerializeToString, api.AskResponse.FromString
                )
                question = api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text="What is the risk limit?")])
                parts = [part async for part in ask(question, metadata=[("authorization", "Bearer risk")], timeout=10)]
                assert len(parts[0].opening.sources) == 3
                for metadata in ([], [("authorization", "Bearer nobody")]):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await anext(aiter(ask(question, metadata=metadata, timeout=10)))
                    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        finally:
            await rpc.drain(0)


SOURCES, TENANTS = ("a", "b", "c"), ("x", "y", "")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(SOURCES), st.lists(st.sampled_from(TENANTS[:2]), min_size=1, unique=True)),
    st.lists(st.sampled_from(TENANTS), min_size=1, max_size=6),
    st.integers(1, 8),
)
def test_questions_of_all_tenants_in_one_batch_get_the_best_of_what_is_open_to_each(
    stands_in: list[list[str]], open_to: dict[str, list[str]], tenants: list[str], k: int
) -> None:
    documents = [StandInDocument(f"d{at}", f"text {at}", sources=tuple(each)) for at, each in enumerate(stands_in)]
    told = {source: tuple(each) for source, each in open_to.items()}
    part = content_part(retrieval=Retrieval(top_k=k)).model_copy(update={"open_to": told})
    content = Content(part, stand_in_index(documents, SNAPSHOT))
    lookups = [
        Lookup(f"text {at}", content, allowed=content.index.allowed(part.closed_to(tenant)))
        for at, tenant in enumerate(tenants)
    ]
    alone = [Retriever(StandInEncoder(), "").work([each])[0].passages for each in lookups]
    for tenant, found, single in zip(tenants, Retriever(StandInEncoder(), "").work(lookups), alone, strict=True):
        may_see = [any(tenant in told.get(each, (tenant,)) for each in sources) for sources in stands_in]
        seen = [passage.index for passage in found.passages]
        assert all(may_see[index] for index in seen)
        assert len(seen) == min(k, sum(may_see)), "no place is left unfilled"
        assert seen == [passage.index for passage in single]


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), max_size=20),
    st.lists(st.sampled_from(SOURCES), min_size=6, max_size=6),
    st.frozensets(st.sampled_from(SOURCES)),
)
def test_a_stored_chunk_is_open_where_any_of_its_places_is(
    places: list[list[int]], sources: list[str], closed: frozenset[str]
) -> None:
    chunks = stored(places, [Document(source, f"{at}.html", "t", None) for at, source in enumerate(sources)])
    found = chunks.document_beside(closed).tolist()
    assert found == [next((d for d in each if sources[d] not in closed), -1) for each in places]
    assert chunks.document_beside(frozenset()).tolist() == chunks.document_of.tolist()


def stored(places: Sequence[Sequence[int]], documents: Sequence[Document]) -> StoredChunks:
    """Chunks without a text, at the beginning of these documents."""
    offsets = np.zeros(len(places) + 1, dtype="<i8")
    files = {
        names.TEXTS: memoryview(b""),
        names.TEXT_OFFSETS: memoryview(offsets.tobytes()),
        names.TOKENS: memoryview(b""),
        names.TOKEN_OFFSETS: memoryview(offsets.tobytes()),
        names.PASSAGES: memoryview(b""),
        names.PLACES: memoryview(np.array([(d, 0, 0) for each in places for d in each], dtype="<i8").tobytes()),
        names.PLACE_OFFSETS: memoryview(np.cumsum([0, *map(len, places)], dtype="<i8").tobytes()),
    }
    return StoredChunks(files, documents)


def test_without_tenants_no_search_is_filtered() -> None:
    index = stand_in_index(DOCUMENTS, SNAPSHOT)
    assert content_part().closed_to("risk") == frozenset()
    assert index.allowed(frozenset()) is None


def test_the_masks_of_an_index_are_made_once(tmp_path: Path) -> None:
    index = stand_in_index(LIBRARY, SNAPSHOT)
    closed = opened().closed_to("risk")
    assert index.allowed(closed) is index.allowed(frozenset(set(closed)))
