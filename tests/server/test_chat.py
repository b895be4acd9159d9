"""Chat completions through ASGI, with stand-ins for the models."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rag_server import DOCUMENTS, Running, body, content_part, pod_part, running

from tailhold_api.access import Http
from tailhold_api.serving import Admission, Overflow, Prompt, Retrieval
from tailhold_api.spec import Program
from tailhold_server.app import create_app
from tailhold_server.settings import ServerSettings
from tailhold_server.stages import Stage
from tailhold_server.testing import StandInDocument, StandInEngine, StandInTokenizer

PATH = "/v1/chat/completions"


def events(text: str) -> list[dict[str, Any]]:
    """The data events of a stream but the last, which is [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def deltas(chunks: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Joined text and annotations."""
    said = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    annotations = [each for delta in said for each in delta.get("annotations", [])]
    assert [each.pop("index") for each in annotations] == list(range(len(annotations)))
    return "".join(delta.get("content", "") for delta in said), annotations


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab[12], \u4f60\U0001f680\u00e9", min_size=1, max_size=60))
def test_a_stream_and_a_whole_answer_are_one(answer: str) -> None:
    """C71: joined deltas are the unstreamed text, and citations are the same."""

    async def both() -> None:
        async with running(engine=StandInEngine(answer=answer)) as server:
            whole = (await server.ask()).json()
            chunks = events((await server.ask(stream=True)).text)
            text, annotations = deltas(chunks)
            message = whole["choices"][0]["message"]
            assert text == message["content"] == answer
            assert annotations == message["annotations"] == chunks[-1]["tailhold"]["annotations"]
            assert chunks[0]["tailhold"]["sources"] == whole["tailhold"]["sources"]
            assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]

    asyncio.run(both())


async def test_sources_come_before_the_first_token_and_stages_with_the_last() -> None:
    async with running() as server:
        chunks = events((await server.ask(stream=True)).text)
    first, last = chunks[0], chunks[-1]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [each["title"] for each in first["tailhold"]["sources"]] == ["Hours", "Badges"]
    assert first["tailhold"]["sources"][0]["text"] == DOCUMENTS[0].text
    stages = last["tailhold"]["stages"]
    assert list(stages) == [*Stage, "unaccounted", "total"]
    assert sum(stages.values()) - stages["total"] == pytest.approx(stages["total"], abs=0.01)
    assert all(stages[each] > 0 for each in ("tokenize", "embed", "search", "prompt", "prefill", "decode", "total"))


async def test_a_citation_links_to_the_document_or_to_the_servers_copy() -> None:
    async with running() as server:
        message = (await server.ask()).json()["choices"][0]["message"]
        cited = [each["url_citation"] for each in message["annotations"]]
        assert cited[0]["url"] == "https://example.org/hours"
        assert all(message["content"][c["start_index"] : c["end_index"]] == f"[{n}]" for n, c in enumerate(cited, 1))
        copy = (await server.public.get(cited[1]["url"])).json()
        assert copy["text"] == DOCUMENTS[1].text
        assert copy["title"] == "Badges"
        missing = await server.public.get("/v1/sources/" + "0" * 64)
        assert missing.status_code == 404
        assert "error" in missing.json()


@pytest.mark.parametrize("options", [{"include_usage": True}, {"include_usage": False}, {}, None])
async def test_usage_comes_when_asked_and_breaks_nobody_else(options: dict[str, Any] | None) -> None:
    """C53."""
    async with running() as server:
        chunks = events((await server.ask(stream=True, stream_options=options)).text)
    if options and options.get("include_usage"):
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["total_tokens"] > 0
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        chunks.pop()
    else:
        assert all("usage" not in chunk for chunk in chunks)
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)


@pytest.mark.parametrize("continuous", [True, False, None])
async def test_usage_is_in_every_chunk_when_asked_as_vllm_is(continuous: bool | None) -> None:
    """C53."""
    options = {"include_usage": True, "continuous_usage_stats": continuous}
    async with running() as server:
        chunks = events((await server.ask(stream=True, stream_options=options)).text)
    *before, last = chunks
    if not continuous:
        assert all(chunk["usage"] is None for chunk in before)
        return
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts[0] == 0
    assert counts == sorted(counts)
    assert before[-1]["usage"] == last["usage"]
    for chunk in chunks:
        used = chunk["usage"]
        assert used["prompt_tokens"] == last["usage"]["prompt_tokens"] > 0
        assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]


@pytest.mark.parametrize("include", [{}, {"include_usage": False}, {"include_usage": None}])
async def test_usage_in_every_chunk_is_nothing_where_none_was_asked_for(include: dict[str, Any]) -> None:
    """As with vLLM. C53."""
    async with running() as server:
        options = {"continuous_usage_stats": True, **include}
        chunks = events((await server.ask(stream=True, stream_options=options)).text)
        assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in chunks)


async def test_how_usage_is_asked_for_is_a_boolean() -> None:
    async with running() as server:
        for told in ("yes", 1):
            refused = await server.ask(stream=True, stream_options={"continuous_usage_stats": told})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "stream_options.continuous_usage_stats"
        schema = (await server.public.get("/openapi.json")).json()["components"]["schemas"]["StreamOptions"]
    assert {"include_usage", "continuous_usage_stats"} <= schema["properties"].keys()


async def test_usage_counts_the_retrieved_tokens() -> None:
    """C53."""
    async with running() as server:
        refused = await server.ask(stream=False, stream_options={"include_usage": True})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "stream_options"
        answer = (await server.ask()).json()
    assert answer["usage"]["prompt_tokens"] > answer["tailhold"]["context"]["tokens"] > 0
    assert answer["usage"]["prompt_tokens"] == len(server.engine.prompts[-1])


async def test_parts_of_text_are_one_question() -> None:
    """C54: joined by a newline, for the prompt and for the look-up."""
    parts = [{"type": "text", "text": "When does"}, {"type": "text", "text": "the office close?"}]
    async with running() as server:
        await server.ask(parts)
        await server.ask("When does\nthe office close?")
    assert server.engine.prompts[-2] == server.engine.prompts[-1]


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], None])
async def test_an_empty_question_is_refused_however_it_is_written(content: Any) -> None:
    """C54."""
    async with running() as server:
        refused = await server.ask(content)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[0]")


async def test_a_part_that_is_no_text_is_named() -> None:
    """C54."""
    async with running() as server:
        refused = await server.ask([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {}}])
    assert refused.json()["error"]["param"] == "messages[0].content[1]"


@pytest.mark.parametrize(
    ("sent", "status", "param", "code"),
    [
        (b"{", 400, None, None),
        (b"{}", 400, "messages", None),
        (b'{"messages":"hello"}', 400, "messages", None),
        (b'{"messages":[]}', 400, "messages", None),
        (json.dumps(body(model="no-such-model")).encode(), 404, "model", "model_not_found"),
        (json.dumps(body(tools=[{"type": "function"}])).encode(), 400, "tools", "unsupported_parameter"),
        (json.dumps(body(n=2)).encode(), 400, "n", "unsupported_parameter"),
        (json.dumps(body(top_logprobs=2)).encode(), 400, "top_logprobs", None),
        (json.dumps(body(rag={})).encode(), 400, "rag", "unknown_parameter"),
        (json.dumps(body(temperature="1")).encode(), 400, "temperature", None),
        (json.dumps(body(top_p=0)).encode(), 400, "top_p", None),
        (json.dumps(body(max_tokens=0)).encode(), 400, "max_tokens", None),
        (json.dumps(body(max_completion_tokens=-1)).encode(), 400, "max_completion_tokens", None),
        (json.dumps(body(5)).encode(), 400, "messages[0].content", None),
        (json.dumps(body([5])).encode(), 400, "messages[0].content[0]", None),
    ],
)
async def test_a_refusal_has_openais_shape_and_names_the_field(
    sent: bytes, status: int, param: str | None, code: str | None
) -> None:
    """C58, C60."""
    async with running() as server:
        refused = await server.public.post(PATH, content=sent)
        counted = (await server.internal.get("/metrics")).text
    error = refused.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (refused.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["message"]
    assert 'tailhold_requests_total{outcome="invalid"} 1.0' in counted


@pytest.mark.parametrize("asked", [{"top_k": 5000}, {"rag": {"top_k": 5000}}])
async def test_more_passages_than_the_pipeline_looks_up_cannot_be_asked_for(asked: dict[str, Any]) -> None:
    """C05: the cap is in the message."""
    async with running() as server:
        refused = await server.public.post(PATH, json=body(**asked))
    assert refused.status_code == 400
    assert "`retrieval.topK`, at most 100" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nope", 404), ("GET", PATH, 405), ("POST", "/v1/models", 405), ("GET", "/v1/models/nope", 404)],
)
async def test_wrong_routes_have_openais_shape_too(method: str, path: str, status: int) -> None:
    """C58."""
    async with running() as server:
        refused = await server.public.request(method, path)
    assert refused.status_code == status
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_body_too_large_is_refused_whatever_it_says_of_itself() -> None:
    """C58."""
    small = pod_part().model_copy(update={"server": Program(http=Http(max_body_mebibytes=1))})

    async def pieces() -> Any:
        for _ in range(4):
            yield b" " * 400_000

    async with running(pod=small) as server:
        declared = await server.public.post(PATH, content=b" " * (1024 * 1024 + 1))
        undeclared = await server.public.post(PATH, content=pieces())
    for refused in (declared, undeclared):
        assert (refused.status_code, refused.headers["connection"]) == (413, "close")
        assert set(refused.json()["error"]) == {"message", "type", "param", "code"}


class Uploader:
    """A client, called without a socket, that sends its body in pieces and then leaves its connection open."""

    def __init__(self, pieces: list[bytes], *, pause: float = 0.0, ends: bool = False) -> None:
        self._pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        self._pieces[-1]["more_body"] = not ends
        self._pause = pause
        self.took: list[Any] = []

    async def call(self, app: Any) -> None:
        """Until it is answered."""
        async with asyncio.timeout(5):
            await app(request_scope(), self._receive, self._send)

    async def _receive(self) -> Any:
        await asyncio.sleep(self._pause)
        return self._pieces.pop(0) if self._pieces else await asyncio.Future()

    async def _send(self, message: Any) -> None:
        self.took.append(message)


@pytest.mark.parametrize("pieces", [[b""], [b"{"], [b'{"messages"', b": ["]])
async def test_a_body_that_never_ends_is_given_up(pieces: list[bytes]) -> None:
    limited = ServerSettings(receive_seconds=0.02)
    client = Uploader(pieces)
    async with running() as server:
        await client.call(create_app(server.service, limited))
        counted = (await server.internal.get("/metrics")).text
        assert server.service.held == 0
    begun, said = client.took[0], json.loads(client.took[1]["body"])["error"]
    assert begun["status"] == 408
    assert (b"connection", b"close") in begun["headers"]
    assert set(said) == {"message", "type", "param", "code"}
    assert "0.02 s" in said["message"]
    assert 'tailhold_requests_total{outcome="client_closed"} 1.0' in counted


async def test_a_slow_upload_that_goes_on_is_no_stalled_one() -> None:
    """The time counts from piece to piece, and no longer once the body is there."""
    limited = ServerSettings(receive_seconds=0.05)
    sent = json.dumps(body()).encode() + b" " * 20_000
    client = Uploader([sent[at : at + 1000] for at in range(0, len(sent), 1000)], pause=0.01, ends=True)
    engine = StandInEngine()
    async with running(engine=engine) as server:
        engine.freeze()
        called = asyncio.ensure_future(client.call(create_app(server.service, limited)))
        await _until(lambda: server.service.held == 1)
        await asyncio.sleep(0.1)
        engine.thaw()
        await called
    assert client.took[0]["status"] == 200


async def test_a_body_that_trickles_is_given_up() -> None:
    """One byte now and then would hold a place for ever."""
    client = Uploader([b" "] * 10_000, pause=0.01)
    async with running() as server, asyncio.timeout(20):
        await client.call(create_app(server.service, ServerSettings(receive_seconds=0.1)))
    assert client.took[0]["status"] == 408


async def test_a_bug_of_ours_says_nothing_of_itself() -> None:
    """C58."""

    class Broken(StandInEngine):
        def generate(self, *_: Any) -> Any:
            raise RuntimeError("secret at 0x7f00")

    engine = StandInEngine()
    async with running(engine=engine) as server:
        engine.generate = Broken().generate  # type: ignore[method-assign]
        failed = await server.ask()
        assert failed.status_code == 500
        assert "secret" not in failed.text
        assert set(failed.json()["error"]) == {"message", "type", "param", "code"}
        assert server.service.held == 0


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"max_tokens": None, "max_completion_tokens": 3}, 3, "length"),
        ({"max_tokens": 5, "max_completion_tokens": 3}, 3, "length"),
        ({"max_tokens": 2}, 2, "length"),
        ({"max_tokens": None}, 256, "length"),
        ({"max_tokens": 1_000_000}, 300, "stop"),
    ],
)
async def test_how_long_an_answer_may_be(fields: dict[str, Any], tokens: int, reason: str) -> None:
    """C60."""
    async with running(engine=StandInEngine(answer="word " * 300)) as server:
        answer = (await server.ask(**fields)).json()
    assert answer["usage"]["completion_tokens"] == tokens
    assert answer["choices"][0]["finish_reason"] == reason


@pytest.mark.parametrize(
    ("fields", "temperature"),
    [
        pytest.param({}, 0.6, id="none-sent"),
        pytest.param({"temperature": None}, 0.6, id="null"),
        pytest.param({"temperature": 0}, 0.0, id="zero-is-an-answer"),
        pytest.param({"temperature": 1.5}, 1.5, id="the-clients-own"),
    ],
)
async def test_the_pipelines_temperature_stands_in_for_the_clients(fields: dict[str, Any], temperature: float) -> None:
    async with running(content=content_part(prompt=Prompt(temperature=0.6))) as server:
        assert (await server.ask(**fields)).status_code == 200
    assert server.engine.samplings[-1].temperature == temperature


async def test_an_answer_is_the_likeliest_where_nobody_says_otherwise() -> None:
    async with running() as server:
        await server.ask()
    assert server.engine.samplings[-1].temperature == 0.0


async def test_a_question_too_long_is_refused_before_the_stream_begins() -> None:
    """C74."""
    async with running() as server:
        refused = await server.ask("word " * 3000, stream=True)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert server.service.held == 0


async def test_megabytes_that_cannot_fit_are_refused_without_being_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-five of them at once took all of a pod's memory, and its probes with it."""
    longest = []
    encode = StandInTokenizer.encode
    monkeypatch.setattr(StandInTokenizer, "encode", lambda self, text: longest.append(len(text)) or encode(self, text))
    async with running() as server:
        refused = await server.ask("word " * 800_000)
        history = [{"role": role, "content": "word " * 100_000} for role in ("user", "assistant")]
        answer = await server.public.post(PATH, json={"messages": [*history, {"role": "user", "content": "When?"}]})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert "hold at most 2048 characters" in refused.json()["error"]["message"]
    assert (answer.status_code, answer.json()["tailhold"]["context"]["dropped"]) == (200, 1)
    assert max(longest) < 4096


async def test_a_pipeline_may_cut_a_question_instead_and_says_so() -> None:
    for words in ("word " * 3000, "word " * 800_000):
        async with running(content=content_part(prompt=Prompt(on_overflow=Overflow.TRUNCATE))) as server:
            answer = await server.ask(words)
        assert answer.status_code == 200
        context = answer.json()["tailhold"]["context"]
        assert (context["truncated"], context["chunks"]) == (True, 0)
        assert answer.json()["usage"]["total_tokens"] <= 2048


async def test_a_pipeline_may_refuse_what_it_would_have_to_leave_out() -> None:
    turns = [{"role": role, "content": f"{role} {n} " * 20} for n in range(30) for role in ("user", "assistant")]
    async with running(content=content_part(prompt=Prompt(on_overflow=Overflow.REFUSE))) as server:
        refused = await server.public.post(PATH, json={"messages": [*turns, {"role": "user", "content": "When?"}]})
        assert (await server.ask("When?")).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "prompt.onOverflow: Refuse" in refused.json()["error"]["message"]


async def test_history_is_dropped_from_the_oldest() -> None:
    """C74."""
    turns = [{"role": role, "content": f"{role} {n} " * 20} for n in range(30) for role in ("user", "assistant")]
    async with running() as server:
        answer = await server.public.post(
            PATH, json={"messages": [*turns, {"role": "user", "content": "When does the office close?"}]}
        )
    prompt = StandInTokenizer().decode(server.engine.prompts[-1])
    assert answer.json()["tailhold"]["context"]["dropped"] > 0
    assert "user 0 " not in prompt
    assert "assistant 29 " in prompt
    assert prompt.startswith("<|system|>Cite the sources.<|end|>")
    assert prompt.endswith("Question: When does the office close?<|end|><|assistant|>")


async def test_two_documents_give_two_sources_though_five_are_asked() -> None:
    """C73."""
    async with running(content=content_part(retrieval=Retrieval(top_k=5))) as server:
        sources = (await server.ask()).json()["tailhold"]["sources"]
    assert [each["title"] for each in sources] == ["Hours", "Badges"]
    assert all(-1 <= each["score"] <= 1 for each in sources)


async def test_an_index_without_a_fitting_chunk_answers_and_says_so() -> None:
    """C73."""
    async with running(content=content_part(retrieval=Retrieval(min_score=1.0))) as server:
        answer = (await server.ask()).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["tailhold"]["sources"] == []
    assert answer["tailhold"]["context"]["chunks"] == 0


@pytest.mark.parametrize("name", ["docs", "org/assistant", "", None])
async def test_pipeline_and_served_name_are_one_model(name: str | None) -> None:
    """C69."""
    async with running() as server:
        answer = await server.ask(model=name)
        listed = (await server.public.get("/v1/models")).json()["data"]
        tuning = (await server.internal.get("/v1/tuning")).json()
    assert answer.json()["model"] == (name or "org/assistant")
    assert [each["id"] for each in listed] == ["org/assistant", "docs", "docs-embedder"]
    assert answer.headers["x-tailhold-revision"] == tuning["revision"]


async def test_a_full_server_refuses_and_says_when_to_come_back() -> None:
    engine = StandInEngine(running_limit=1)
    full = content_part(admission=Admission(max_queued=1))
    async with running(pod=pod_part(max_running_requests=1), content=full, engine=engine) as server:
        engine.freeze()
        held = [asyncio.ensure_future(server.ask()) for _ in range(2)]
        await _until(lambda: server.service.held == 2)
        refused = await server.ask()
        engine.thaw()
        answered = [(await each).status_code for each in held]
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert answered == [200, 200]


async def test_an_engine_that_dies_ends_a_stream_with_an_error_event() -> None:
    engine = StandInEngine(answer="never said")
    async with running(engine=engine) as server:
        engine.freeze()
        asked = asyncio.ensure_future(server.ask(stream=True))
        await _until(lambda: server.service.held == 1)
        engine.kill()
        chunks = events((await asked).text)
        assert chunks[-1]["error"]["type"] == "server_error"
        assert (await server.ask()).status_code == 503
        assert (await server.internal.get("/readyz")).status_code == 503
        assert (await server.internal.get("/livez")).status_code == 503


async def test_a_silent_stream_has_comments_and_a_parser_sees_only_data() -> None:
    """C64."""
    engine, settings, sent = StandInEngine(), ServerSettings(comment_seconds=0.01), []

    async with running(engine=engine, settings=settings) as server:
        app = create_app(server.service, settings)

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def watching(message: Any) -> None:
                sent.append(message.get("body", b""))
                await send(message)

            await app(scope, receive, watching)

        engine.freeze()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(watched), base_url="http://docs") as client:
            asked = asyncio.ensure_future(client.post(PATH, json=body(stream=True)))
            await _until(lambda: sent.count(b": keep-alive\n\n") >= 3)
            engine.thaw()
            answer = await asked
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert all(line == "" or line.startswith((":", "data: ")) for line in answer.text.split("\n"))
    assert deltas(events(answer.text))[0] == "You asked: When does the office close? [1][2]"


class SlowReader:
    """A client, called without a socket, that leaves its connection open and takes so many messages and no more."""

    def __init__(self, server: Running, *, takes: int, **fields: Any) -> None:
        self._app = create_app(server.service, ServerSettings())
        self._sent = [{"type": "http.request", "body": json.dumps(body(**fields)).encode()}]
        self._takes = takes
        self.blocked = asyncio.Event()
        self.reads = asyncio.Event()

    async def call(self) -> None:
        """Until the server is done with it."""
        await self._app(request_scope(), self._receive, self._send)

    async def _receive(self) -> Any:
        return self._sent.pop() if self._sent else await asyncio.Future()

    async def _send(self, _: Any) -> None:
        self._takes -= 1
        if self._takes < 0:
            self.blocked.set()
            await self.reads.wait()


def request_scope() -> dict[str, Any]:
    """Of a question."""
    return {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [],
    }


async def test_an_engine_whose_only_reader_is_slow_has_not_stalled() -> None:
    engine = StandInEngine(answer="word " * 50)
    async with running(engine=engine) as server:
        reader = SlowReader(server, takes=5, stream=True)
        called = asyncio.ensure_future(reader.call())
        await reader.blocked.wait()
        assert server.observed.waiting == 0
        engine.freeze()
        reader.reads.set()
        await _until(lambda: server.observed.waiting == 1)
        engine.thaw()
        await called
        assert server.observed.waiting == 0


@pytest.mark.parametrize(("takes", "comment_seconds"), [(0, 10.0), (1, 10.0), (5, 10.0), (2, 0.001)])
async def test_a_client_that_takes_nothing_of_its_answer_has_left(takes: int, comment_seconds: float) -> None:
    """Also where what it does not take is a comment, while the engine is silent."""
    engine = StandInEngine(answer="word " * 50)
    async with running(engine=engine) as server:
        server.service.send_seconds = 0.02
        server.service.comment_seconds = comment_seconds
        if comment_seconds < 1:
            engine.freeze()
        reader = SlowReader(server, takes=takes, stream=True)
        async with asyncio.timeout(5):
            await reader.call()
        counted = (await server.internal.get("/metrics")).text
        assert reader.blocked.is_set()
        assert server.service.held == 0
        assert server.observed.waiting == 0
    assert 'tailhold_requests_total{outcome="client_closed"} 1.0' in counted


async def test_a_client_that_leaves_while_it_uploads_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        return messages.pop()

    async def send(_: Any) -> None:
        pass

    async with running() as server:
        await create_app(server.service, ServerSettings())(request_scope(), receive, send)
        counted = (await server.internal.get("/metrics")).text
    assert 'tailhold_requests_total{outcome="client_closed"} 1.0' in counted
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_popular_chunks_stand_in_one_order_when_asked() -> None:
    documents = [StandInDocument(f"T{n}", f"alpha beta gamma {n}") for n in range(4)]
    stable = content_part(retrieval=Retrieval(context_order="Stable", top_k=4))  # type: ignore[arg-type]
    async with running(content=stable, documents=documents) as server:
        titles = [each["title"] for each in (await server.ask("gamma 3")).json()["tailhold"]["sources"]]
    assert titles == ["T0", "T1", "T2", "T3"]


async def _until(holds: Any) -> None:
    """Give the loop turns until something holds; a test that waits for ever is ended by the runner."""
    while not holds():  # noqa: ASYNC110  what is waited for is a number, not an event
        await asyncio.sleep(0.001)
