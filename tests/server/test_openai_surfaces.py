"""The unmodified OpenAI client against each surface, with stand-ins for the models."""

import base64
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from openai.types import EmbeddingCreateParams, FileCreateParams, VectorStoreSearchParams
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.vector_stores import FileBatchCreateParams
from openai.types.vector_stores import FileCreateParams as AddParams
from rag_server import DOCUMENTS, OTHER_SNAPSHOT, body, client_of, content_part, running

from tailhold_server.app import create_app
from tailhold_server.routes.fields import ATTACH, BATCH, CHAT, EMBEDDINGS, FILES, SEARCH, Fields, Treatment
from tailhold_server.settings import ServerSettings
from tailhold_server.testing import StandInDocument, StandInEncoder, stand_in_index

MANY = tuple(StandInDocument(f"Note{n}", f"The office note number {n} about closing.") for n in range(60))


@asynccontextmanager
async def client(**means: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    async with running(**means) as server:
        yield client_of(server)


@pytest.mark.parametrize(
    ("params", "fields"),
    [
        (CompletionCreateParamsBase, CHAT),
        (EmbeddingCreateParams, EMBEDDINGS),
        (VectorStoreSearchParams, SEARCH),
        (FileCreateParams, FILES),
        (AddParams, ATTACH),
        (FileBatchCreateParams, BATCH),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_each_field_of_openais_client_is_honoured_ignored_or_refused(params: Any, fields: Fields) -> None:
    keys = set(params.__annotations__) | ({"stream"} if params is CompletionCreateParamsBase else set())
    assert keys - fields.keys() == set()
    assert fields.keys() - keys <= {"input_type", "cache_salt"}
    assert all(rule.says for rule in fields.values())


@pytest.mark.parametrize("name", [name for name, rule in CHAT.items() if rule.treatment is Treatment.REFUSED])
async def test_what_is_not_carried_out_is_refused_by_name(name: str) -> None:
    async with running() as server:
        refused = await server.ask(**{name: {"anything": 1}})
        fine = [await server.ask(**{name: value}) for value in CHAT[name].harmless]
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, name, "unsupported_parameter")
    assert CHAT[name].says in error["message"]
    assert all(each.status_code == 200 for each in fine)


@pytest.mark.parametrize("name", [name for name, rule in CHAT.items() if rule.treatment is Treatment.IGNORED])
async def test_what_is_ignored_changes_no_answer(name: str) -> None:
    rule = CHAT[name]
    async with running() as server:
        plain = await server.ask()
        told = [await server.ask(**{name: value}) for value in (rule.harmless or (None, {"a": "b"}, "x", 5))]
        other = await server.ask(**{name: {"anything": 1}})
    texts = {each.json()["choices"][0]["message"]["content"] for each in (plain, *told)}
    assert len(texts) == 1
    assert other.status_code == (200 if rule.any_value else 400)


HONOURED: dict[str, Any] = {
    "messages": [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "When?"}],
    "model": "org/assistant",
    "stream": False,
    "stream_options": None,
    "max_completion_tokens": 3,
    "max_tokens": 3,
    "temperature": 0.5,
    "top_p": 0.5,
    "seed": 7,
    "stop": ["asked"],
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": -100},
    "logprobs": True,
    "top_logprobs": 0,
    "response_format": {"type": "json_object"},
    "user": "u-1",
    "safety_identifier": "s-1",
}


def test_an_example_stands_for_each_honoured_field() -> None:
    assert HONOURED.keys() == {name for name, rule in CHAT.items() if rule.treatment is Treatment.HONOURED}


async def test_what_is_honoured_reaches_the_engine() -> None:
    async with running() as server:
        for name, value in HONOURED.items():
            answered = await server.public.post("/v1/chat/completions", json=body() | {name: value})
            assert answered.status_code == 200, (name, answered.text)
    drawn = server.engine.samplings
    assert {each.seed for each in drawn} == {None, 7}
    assert {each.logit_bias for each in drawn} == {(), ((5, -100.0),)}
    assert {each.json_schema for each in drawn} == {None, '{"type":"object"}'}
    assert {each.top_p for each in drawn} == {1.0, 0.5}
    assert {each.stop for each in drawn} == {(), ("asked",)}


async def test_probabilities_are_the_same_in_a_stream() -> None:
    async with client() as api:
        asked: Any = {"model": "docs", "messages": body()["messages"], "logprobs": True, "top_logprobs": 2}
        whole = await api.chat.completions.create(**asked)
        parts = [chunk async for chunk in await api.chat.completions.create(**asked, stream=True)]
    said = whole.choices[0].logprobs
    assert said is not None
    assert said.content is not None
    streamed = [each for chunk in parts if (odds := chunk.choices[0].logprobs) for each in odds.content or []]
    assert streamed == said.content
    assert "".join(each.token for each in said.content) == whole.choices[0].message.content
    assert [len(each.top_logprobs) for each in said.content] == [2] * len(said.content)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"messages": [{"role": "tool", "content": "5", "tool_call_id": "1"}]}, "messages[0].role"),
    ],
)
async def test_a_value_that_cannot_be_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    async with running() as server:
        refused = await server.public.post("/v1/chat/completions", json=body() | fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


# Embeddings


async def test_the_client_gets_vectors_in_order_whatever_their_encoding() -> None:
    """C62: the client asks for base64 by itself."""
    texts = [f"text number {n}" * (n % 5 + 1) for n in range(70)]
    async with client() as api:
        packed = await api.embeddings.create(model="docs-embedder", input=texts)
        plain = await api.embeddings.create(model="docs", input=texts, encoding_format="float", dimensions=64)
    expected = StandInEncoder().encode(texts)
    assert [each.index for each in packed.data] == list(range(70))
    for each in (packed, plain):
        np.testing.assert_array_equal(np.array([row.embedding for row in each.data], np.float32), expected)
    assert packed.usage.prompt_tokens == packed.usage.total_tokens == sum(StandInEncoder().count_tokens(texts))


async def test_base64_is_little_endian_float32() -> None:
    """C62."""
    async with running() as server:
        said = await server.public.post("/v1/embeddings", json={"input": "alpha", "encoding_format": "base64"})
    raw = base64.b64decode(said.json()["data"][0]["embedding"])
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), StandInEncoder().encode(["alpha"])[0])
    assert said.json()["model"] == "docs-embedder"


async def test_a_text_is_a_question_unless_it_is_said_to_be_a_passage() -> None:
    from rag_server import pod_part

    pod = pod_part()
    prefixed = pod.embedder.model_copy(update={"query_prefix": "query: ", "passage_prefix": "passage: "})
    async with running(pod=pod.model_copy(update={"embedder": prefixed})) as server:
        for asked, text in (
            ({}, "query: alpha"),
            ({"input_type": "query"}, "query: alpha"),
            ({"input_type": "passage"}, "passage: alpha"),
            ({"input_type": "none"}, "alpha"),
        ):
            said = await server.public.post("/v1/embeddings", json={"input": "alpha", **asked})
            vector = np.array(said.json()["data"][0]["embedding"], np.float32)
            np.testing.assert_array_equal(vector, StandInEncoder().encode([text])[0])


@pytest.mark.parametrize(
    ("asked", "status", "param", "code"),
    [
        ({"input": ""}, 400, "input", None),
        ({"input": []}, 400, "input", None),
        ({"input": ["a", " ", "b"]}, 400, "input[1]", None),
        ({"input": ["a", "word " * 300]}, 400, "input[1]", "context_length_exceeded"),
        ({"input": ["a", "x" * 100_000]}, 400, "input[1]", "context_length_exceeded"),
        ({"input": ["a"] * 2049}, 400, "input", None),
        ({"input": [1, 2, 3]}, 400, "input", "unsupported_parameter"),
        ({"input": [[1, 2], [3]]}, 400, "input", "unsupported_parameter"),
        ({"input": "a", "dimensions": 32}, 400, "dimensions", None),
        ({"input": "a", "encoding_format": "int8"}, 400, "encoding_format", None),
        ({"input": "a", "input_type": "document"}, 400, "input_type", None),
        ({"input": "a", "model": "text-embedding-3-small"}, 404, "model", "model_not_found"),
        ({"input": {"a": 1}}, 400, "input", None),
        ({}, 400, "input", None),
    ],
)
async def test_an_embedding_that_cannot_be_is_refused_by_name(
    asked: dict[str, Any], status: int, param: str, code: str | None
) -> None:
    """C91."""
    async with running() as server:
        refused = await server.public.post("/v1/embeddings", json=asked)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (status, param, code), error


# Search


async def test_a_search_finds_what_an_answer_would_be_drawn_from() -> None:
    async with client() as api:
        found = await api.vector_stores.search("vs_docs", query="When does the office close?")
        answer = await api.chat.completions.create(model="docs", messages=body()["messages"])
    said = [each.content[0].text for each in found.data]
    assert said == [each["text"] for each in answer.model_extra["tailhold"]["sources"]]  # type: ignore[index]
    assert found.data[0].filename == "hours.html"
    assert found.data[0].attributes is not None
    assert found.data[0].attributes["title"] == "Hours"
    assert [each.score for each in found.data] == sorted((each.score for each in found.data), reverse=True)


async def test_several_queries_give_each_passage_once_with_its_best_score() -> None:
    async with client() as api:
        queries = ["When does the office close?", "When are badges renewed?"]
        both = await api.vector_stores.search("vs_docs", query=queries)
        each = [await api.vector_stores.search("vs_docs", query=query) for query in queries]
    scores = [(hit.file_id, hit.score) for found in each for hit in found.data]
    best = {name: max(score for other, score in scores if other == name) for name, _ in scores}
    assert {hit.file_id: hit.score for hit in both.data} == best


async def test_a_filter_acts_within_the_search_and_the_page_stays_full() -> None:
    async with client(documents=MANY) as api:
        even: Any = {"type": "in", "key": "title", "value": [f"Note{n}" for n in range(0, 60, 6)]}
        wanted: Any = {"type": "and", "filters": [even, {"type": "ne", "key": "filename", "value": "note0.html"}]}
        found = await api.vector_stores.search("vs_docs", query="note number 3", filters=wanted, max_num_results=9)
    titles = {str((each.attributes or {})["title"]) for each in found.data}
    assert titles == {f"Note{n}" for n in range(6, 60, 6)}


async def test_scores_below_the_threshold_are_left_out() -> None:
    async with client() as api:
        asked: Any = {"query": "When does the office close?"}
        all_found = await api.vector_stores.search("vs_docs", **asked)
        threshold = all_found.data[0].score - 0.001
        best = await api.vector_stores.search("vs_docs", **asked, ranking_options={"score_threshold": threshold})
        none = await api.vector_stores.search("vs_docs", **asked, ranking_options={"score_threshold": 1.0})
    assert ([each.score for each in best.data], none.data) == ([all_found.data[0].score], [])


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"query": ""}, "query"),
        ({"query": ["a", ""]}, "query[1]"),
        ({"query": []}, "query"),
        ({"query": "a", "max_num_results": 0}, "max_num_results"),
        ({"query": "a", "max_num_results": 51}, "max_num_results"),
        ({"query": "a", "rewrite_query": True}, "rewrite_query"),
        ({"query": "a", "ranking_options": {"ranker": "other"}}, "ranking_options.ranker"),
        ({"query": "a", "filters": {"type": "eq", "key": "a", "value": [1]}}, "filters"),
        ({"query": "a", "filters": {"type": "like", "key": "a", "value": 1}}, "filters.type"),
        ({"query": "a", "filters": {"type": "and", "filters": []}}, "filters.filters"),
        ({"query": "a", "top_k": 5}, "top_k"),
    ],
)
async def test_a_search_that_cannot_be_is_refused_by_name(asked: dict[str, Any], param: str) -> None:
    async with running() as server:
        refused = await server.public.post("/v1/vector_stores/vs_docs/search", json=asked)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text


async def test_the_client_walks_models_stores_and_documents() -> None:
    async with client(documents=MANY) as api:
        names = [each.id async for each in api.models.list()]
        assert names == ["org/assistant", "docs", "docs-embedder"]
        assert [(await api.models.retrieve(name)).id for name in names] == names
        assert [each.id async for each in api.vector_stores.list()] == ["vs_docs"]
        store = await api.vector_stores.retrieve("vs_docs")
        assert (store.file_counts.completed, store.file_counts.total, store.status) == (60, 60, "completed")
        files = [each async for each in api.vector_stores.files.list("vs_docs", limit=7)]
        assert len({each.id for each in files}) == len(files) == 60
        text = [
            each.text async for each in await api.vector_stores.files.content(files[0].id, vector_store_id="vs_docs")
        ]
        assert len(text) == 1
        with pytest.raises(openai.NotFoundError):
            await api.vector_stores.retrieve("vs_other")
        with pytest.raises(openai.BadRequestError, match="corpus source"):
            await api.vector_stores.files.delete(files[0].id, vector_store_id="vs_docs")


# Uploads


async def test_without_a_place_for_them_uploads_are_refused_by_the_fields_name() -> None:
    async with client() as api:
        for call in (
            api.files.create(file=("a.txt", b"hello"), purpose="assistants"),
            api.files.list(),
            api.vector_stores.files.create("vs_docs", file_id="file-x"),
        ):
            with pytest.raises(openai.NotFoundError, match=r"corpus\.uploads"):
                await call


async def test_a_file_is_uploaded_listed_read_and_deleted(tmp_path: Path) -> None:
    async with client(folder=tmp_path) as api:
        names = ["a.txt", "b.md", "../../etc/passwd", "\u00e4\U0001f680 \u4f60.txt", ".", "x" * 400 + ".txt"]
        for name in names:
            await api.files.create(file=(name, f"content of {name}".encode()), purpose="user_data")
        kept = [each async for each in api.files.list(limit=2, order="asc")]
        assert sorted(each.filename for each in kept) == sorted(names)
        again = await api.files.create(file=("a.txt", b"content of a.txt"), purpose="assistants")
        assert again.id in {each.id for each in kept}
        assert (await api.files.retrieve(again.id)).bytes == len(b"content of a.txt")
        assert (await api.files.content(again.id)).content == b"content of a.txt"
        assert (await api.files.delete(again.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await api.files.retrieve(again.id)
    assert "passwd" not in {name for _, _, names in os.walk(tmp_path) for name in names}
    assert not list((tmp_path / "uploads" / "coming").iterdir())


async def test_a_file_becomes_part_of_the_corpus_and_says_how_far_it_is(tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        api = client_of(server)
        before = (await server.internal.get("/v1/tuning")).json()["uploads"]["digest"]
        file = await api.files.create(file=("a.txt", b"hello"), purpose="assistants")
        assert (await server.internal.get("/v1/tuning")).json()["uploads"]["digest"] == before == ""
        added = await api.vector_stores.files.create("vs_docs", file_id=file.id, attributes={"team": "risk", "year": 3})
        assert (added.status, added.id) == ("in_progress", file.id)
        staged = (await server.internal.get("/v1/tuning")).json()["uploads"]["digest"]
        assert len(staged) == 64
        again = await api.vector_stores.files.create("vs_docs", file_id=file.id)
        assert again.created_at == added.created_at
        assert (await server.internal.get("/v1/tuning")).json()["uploads"]["digest"] == staged
        store = await api.vector_stores.retrieve("vs_docs")
        assert (store.status, store.file_counts.in_progress) == ("in_progress", 1)
        gone = await api.vector_stores.files.delete(file.id, vector_store_id="vs_docs")
        assert gone.deleted
        assert (await server.internal.get("/v1/tuning")).json()["uploads"]["digest"] == ""
        assert (await api.files.retrieve(file.id)).id == file.id


async def test_a_batch_is_all_or_nothing_and_can_be_cancelled(tmp_path: Path) -> None:
    async with client(folder=tmp_path) as api:
        files = [await api.files.create(file=(f"{n}.txt", b"x%d" % n), purpose="assistants") for n in range(3)]
        with pytest.raises(openai.NotFoundError, match=r"No such file"):
            await api.vector_stores.file_batches.create("vs_docs", file_ids=[files[0].id, "file-" + "0" * 32])
        assert (await api.vector_stores.retrieve("vs_docs")).file_counts.in_progress == 0
        ids = [each.id for each in files]
        batch = await api.vector_stores.file_batches.create("vs_docs", file_ids=ids)
        again = await api.vector_stores.file_batches.create("vs_docs", file_ids=ids)
        assert (batch.id, batch.status, batch.file_counts.in_progress) == (again.id, "in_progress", 3)
        listed = [
            each
            async for each in api.vector_stores.file_batches.list_files(
                batch.id, vector_store_id="vs_docs", limit=2, filter="in_progress"
            )
        ]
        assert {each.id for each in listed} == set(ids)
        cancelled = await api.vector_stores.file_batches.cancel(batch.id, vector_store_id="vs_docs")
        assert (cancelled.status, cancelled.file_counts.cancelled) == ("cancelled", 3)
        assert (await api.vector_stores.retrieve("vs_docs")).file_counts.in_progress == 0


@pytest.mark.parametrize(
    ("form", "kind", "status", "param"),
    [
        (b"", "text/plain", 415, "content-type"),
        (b"", "multipart/form-data", 400, "content-type"),
        (b"nothing", "multipart/form-data; boundary=x", 400, None),
        (b"--x\r\n", "multipart/form-data; boundary=x", 400, None),
        (b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x--\r\n',
         "multipart/form-data; boundary=x", 400, "purpose"),
        (b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nassistants\r\n--x--\r\n',
         "multipart/form-data; boundary=x", 400, "file"),
        (b'--x\r\ncontent-disposition: form-data; name="other"\r\n\r\na\r\n--x--\r\n',
         "multipart/form-data; boundary=x", 400, "other"),
        (b'--x\r\ncontent-disposition: form-data; name="expires_after[anchor]"\r\n\r\na\r\n--x--\r\n',
         "multipart/form-data; boundary=x", 400, "expires_after[anchor]"),
        (b'--x\r\ncontent-disposition: form-data; name="f"; filename="a"\r\n\r\na\r\n--x--\r\n',
         "multipart/form-data; boundary=x", 400, "file"),
        (b"--x\r\n" + b"a" * 20_000 + b": b\r\n\r\n", "multipart/form-data; boundary=x", 400, None),
    ],
)  # fmt: skip
async def test_a_form_that_cannot_be_leaves_nothing(
    form: bytes, kind: str, status: int, param: str | None, tmp_path: Path
) -> None:
    async with running(folder=tmp_path) as server:
        refused = await server.public.post("/v1/files", content=form, headers={"content-type": kind})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (status, param), error
    assert not list((tmp_path / "uploads" / "coming").iterdir())
    assert not list((tmp_path / "uploads" / "files").iterdir())


async def test_a_file_too_large_is_refused_with_the_field_that_says_so(tmp_path: Path) -> None:
    """C95: the number is in the message."""
    async with client(folder=tmp_path) as api:
        largest = b"x" * (1 << 20)
        assert (await api.files.create(file=("a.txt", largest), purpose="assistants")).bytes == 1 << 20
        for extra in (1, 1 << 21):
            with pytest.raises(openai.APIStatusError) as refused:
                await api.files.create(file=("a.txt", io.BytesIO(largest + b"x" * extra)), purpose="assistants")
            assert refused.value.status_code == 413
    assert not list((tmp_path / "uploads" / "coming").iterdir())


async def test_what_was_deleted_is_found_no_more_whatever_snapshot_is_in_force(tmp_path: Path) -> None:
    """A tombstone outlives the snapshot: neither a search nor an answer has it, nor does its key resolve."""
    async with client(folder=tmp_path) as api:
        file = await api.files.create(file=("secret.txt", b"x"), purpose="assistants")
    kept = [*DOCUMENTS, StandInDocument("Secret", "The office safe closes with 4711.")]
    other = stand_in_index(kept, OTHER_SNAPSHOT, uploads={2: f"{file.id}/secret.txt"})
    async with running(folder=tmp_path, other=other, content=content_part(OTHER_SNAPSHOT)) as server:
        api = client_of(server)
        await api.vector_stores.files.create("vs_docs", file_id=file.id)
        asked: Any = {"query": "office safe closes"}
        found = await api.vector_stores.search("vs_docs", **asked)
        assert found.data[0].file_id == file.id
        key = found.data[0].model_extra["key"]  # type: ignore[index]
        assert (await server.public.get(f"/v1/sources/{key}")).status_code == 200
        assert (await api.vector_stores.files.retrieve(file.id, vector_store_id="vs_docs")).status == "completed"
        await api.files.delete(file.id)
        assert file.id not in {each.file_id for each in (await api.vector_stores.search("vs_docs", **asked)).data}
        answer = await api.chat.completions.create(model="docs", messages=body("office safe closes")["messages"])
        assert "4711" not in answer.model_dump_json()
        assert (await server.public.get(f"/v1/sources/{key}")).status_code == 404
    async with client(folder=tmp_path, other=other, content=content_part(OTHER_SNAPSHOT)) as api:
        assert file.id not in {each.file_id for each in (await api.vector_stores.search("vs_docs", **asked)).data}


# Sources


async def test_a_source_is_json_for_programs_and_a_page_for_browsers() -> None:
    hostile = StandInDocument("<script>alert(1)</script>", "a <b> & c")
    async with running(documents=[hostile]) as server:
        url = (await server.ask("a b c")).json()["tailhold"]["sources"][0]["url"]
        told = await server.public.get(url)
        page = await server.public.get(url, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (told.json()["text"], told.json()["object"]) == ("a <b> & c", "source")
    assert page.headers["content-type"].startswith("text/html")
    assert "a &lt;b&gt; &amp; c" in page.text
    assert "<script" not in page.text


async def test_a_citation_begins_with_the_public_address_where_there_is_one() -> None:
    from rag_server import pod_part

    pod = pod_part()
    server_part = pod.server.model_copy(update={"public_url": "https://rag.example.com/"})
    async with running(pod=pod.model_copy(update={"server": server_part})) as server:
        sources = (await server.ask()).json()["tailhold"]["sources"]
    assert sources[1]["url"].startswith("https://rag.example.com/v1/sources/")


def test_the_client_works_without_asyncio_too() -> None:
    """Over a real socket."""
    import asyncio
    import threading

    import uvicorn
    from program_process import free_port

    port, ready, stop = free_port(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with running() as server:
            app = create_app(server.service, ServerSettings())
            program = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, lifespan="off"))
            task = asyncio.ensure_future(program.serve())
            while not program.started:  # noqa: ASYNC110  uvicorn tells nobody
                await asyncio.sleep(0.01)
            ready.set()
            await asyncio.to_thread(stop.wait)
            program.should_exit = True
            await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        with openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as api:
            asked: Any = {"model": "docs", "messages": body()["messages"]}
            whole = api.chat.completions.create(**asked)
            parts = list(api.chat.completions.create(**asked, stream=True))
            joined = "".join(choice.delta.content or "" for part in parts for choice in part.choices)
            assert joined == whole.choices[0].message.content
            assert whole.choices[0].message.annotations
            assert len(api.embeddings.create(model="docs", input="a").data[0].embedding) == 64
            assert api.vector_stores.search("vs_docs", query="office").data
    finally:
        stop.set()
        thread.join(20)
