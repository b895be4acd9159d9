"""The gRPC surface, over real sockets."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from hypothesis import given, settings
from hypothesis import strategies as st
from program_process import Starter, free_port, pace
from rag_server import Running, content_part, pod_part, running

from tailhold_api.rpc import Grpc
from tailhold_api.serving import Admission, AdmissionPolicy
from tailhold_server.errors import Failure, ServeError
from tailhold_server.rpc import convert
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.failing import status_of
from tailhold_server.rpc.ingest import ingest
from tailhold_server.rpc.server import RpcServer
from tailhold_server.stages import Stage
from tailhold_server.testing import StandInEngine
from tailhold_server.tracing import NoTracer, TraceContext, Traced
from tailhold_server.uploads.names import MOST_NAME_BYTES

ASK = "/tailhold.v1.Rag/Ask"
QUESTION = "When does the office close?"


class Client:
    """What a generated client does."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._ask = channel.unary_stream(ASK, api.AskRequest.SerializeToString, api.AskResponse.FromString)

    def ask(self, text: str = QUESTION, timeout: float | None = 20, **fields: Any) -> Any:
        """The call, whose parts are iterated."""
        asked = api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text=text)], **fields)
        return self._ask(asked, timeout=timeout)


@asynccontextmanager
async def serving(
    settings: Grpc | None = None, receive_seconds: float = 30, **parts: Any
) -> AsyncIterator[tuple[Running, Client]]:
    """A server with stand-ins and a client of its gRPC port."""
    async with running(**parts) as server:
        rpc = RpcServer(server.service, settings or Grpc(), receive_seconds=receive_seconds)
        port = free_port()
        await rpc.start("127.0.0.1", port)
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield server, Client(channel)
        finally:
            await rpc.drain(0)


async def _failed(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in call:
            pass
    return caught.value


def _outcomes(server: Running) -> dict[str, float]:
    samples = (each for metric in server.service.telemetry.registry.collect() for each in metric.samples)
    return {each.labels["outcome"]: each.value for each in samples if each.name == "tailhold_requests_total"}


async def test_an_answer_is_an_opening_pieces_and_an_ending() -> None:
    async with serving() as (server, client):
        opening, *pieces, ending = [part async for part in client.ask(model="docs")]
        assert opening.opening.sources[0].title == "Hours"
        assert opening.opening.sources[0].url == "https://example.org/hours"
        assert opening.opening.revision == server.service.revision_of(server.service.contents.current)
        text = "".join(part.piece.text for part in pieces)
        assert text.startswith(f"You asked: {QUESTION}")
        assert ending.ending.citations
        assert ending.ending.finish_reason == api.FINISH_REASON_STOP
        assert ending.ending.usage.completion_tokens > 0
        assert ending.ending.stage_milliseconds["total"] > 0
        for citation in ending.ending.citations:
            assert text[citation.start : citation.end] == f"[{citation.number}]"
        assert _outcomes(server)["ok"] == 1


@settings(max_examples=25, deadline=None)
@given(text=st.text(min_size=1, max_size=80).filter(str.strip), most=st.integers(1, 60))
async def test_it_says_what_http_says(text: str, most: int) -> None:
    async with serving() as (server, client):
        unstreamed = (await server.ask(text, max_tokens=most)).json()
        parts = [part async for part in client.ask(text, max_tokens=most)]
        choice = unstreamed["choices"][0]
        assert "".join(part.piece.text for part in parts) == choice["message"]["content"]
        cited = [(each.start, each.end) for each in parts[-1].ending.citations]
        annotated = [each["url_citation"] for each in choice["message"]["annotations"]]
        assert cited == [(each["start_index"], each["end_index"]) for each in annotated]
        sources = unstreamed["tailhold"]["sources"]
        assert [each.key for each in parts[0].opening.sources] == [each["key"] for each in sources]
        assert parts[-1].ending.usage.prompt_tokens == unstreamed["usage"]["prompt_tokens"]


BAD = [
    ({"model": "gpt-4"}, grpc.StatusCode.NOT_FOUND, "model", "there is org/assistant, docs"),
    ({"temperature": 3.0}, grpc.StatusCode.INVALID_ARGUMENT, "temperature", "less than or equal to 2"),
    ({"max_tokens": 0}, grpc.StatusCode.INVALID_ARGUMENT, "max_tokens", "greater than or equal to 1"),
    ({"stop": [""]}, grpc.StatusCode.INVALID_ARGUMENT, "stop", "1 to 200 characters"),
    ({"top_p": float("nan")}, grpc.StatusCode.INVALID_ARGUMENT, "top_p", "top_p"),
    ({"text": " "}, grpc.StatusCode.INVALID_ARGUMENT, "messages[0]", "the role `user` and a text"),
]


@pytest.mark.parametrize(("fields", "code", "field", "says"), BAD, ids=[each[2] for each in BAD])
async def test_what_is_wrong_is_named(fields: dict[str, Any], code: grpc.StatusCode, field: str, says: str) -> None:
    async with serving() as (server, client):
        error = await _failed(client.ask(**fields))
        assert error.code() is code
        assert says in str(error.details())
        status = await _rich(client.ask(**fields))
        violation = error_details_pb2.BadRequest()
        assert status.details[0].Unpack(violation)
        assert violation.field_violations[0].field == field
        assert _outcomes(server)["invalid"] == 2


async def _rich(call: Any) -> Any:
    await _failed(call)
    return await rpc_status.aio.from_call(call)


async def test_no_message_and_no_role_are_refused() -> None:
    async with serving() as (_, client):
        empty = client._ask(api.AskRequest(), timeout=10)
        assert (await _failed(empty)).code() is grpc.StatusCode.INVALID_ARGUMENT
        roleless = client._ask(api.AskRequest(messages=[api.Message(text="Why?")]), timeout=10)
        assert "messages[0].role" in str((await _failed(roleless)).details())


async def test_a_full_server_says_when_to_try_again() -> None:
    admission = Admission(policy=AdmissionPolicy.BOUNDED, max_queued=0)
    engine = StandInEngine(running_limit=1, seconds_per_token=0.5)
    async with serving(
        engine=engine, pod=pod_part(max_running_requests=1), content=content_part(admission=admission)
    ) as (server, client):
        held = client.ask()
        await anext(aiter(held))
        refused = await _rich(client.ask())
        assert _outcomes(server)["rejected"] == 1
        held.cancel()
        retry = error_details_pb2.RetryInfo()
        assert any(each.Unpack(retry) for each in refused.details)
        assert retry.retry_delay.seconds >= 1
        assert refused.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]


@pytest.mark.parametrize("leave", ["cancel", "deadline"])
async def test_a_call_that_ends_early_ends_the_models_work(leave: str) -> None:
    engine = StandInEngine(seconds_per_token=0.2)
    async with serving(engine=engine) as (server, client):
        call = client.ask(timeout=0.5 if leave == "deadline" else None)
        await anext(aiter(call))
        if leave == "cancel":
            call.cancel()
        else:
            assert (await _failed(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        async with asyncio.timeout(5):
            while server.service.held or not _outcomes(server)["client_closed"]:  # noqa: ASYNC110  with a time limit
                await asyncio.sleep(0.01)
        assert server.observed.waiting == 0


async def test_a_large_message_is_refused_with_the_limit() -> None:
    """C72."""
    async with serving(Grpc(max_message_mebibytes=1)) as (_, client):
        error = await _failed(client.ask("a" * 2 * 1024 * 1024))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1048576" in str(error.details())
        assert [part async for part in client.ask()]


async def test_health_is_the_servers() -> None:
    async with running() as server:
        rpc, port = RpcServer(server.service, Grpc()), free_port()
        await rpc.start("127.0.0.1", port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in ("", "tailhold.v1.Rag"):
                checked = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                assert checked.status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Check(health_pb2.HealthCheckRequest(service="other"))
            watched = aiter(stub.Watch(health_pb2.HealthCheckRequest(service="")))
            assert (await anext(watched)).status == health_pb2.HealthCheckResponse.SERVING
            await rpc.show(ready=False)
            assert (await anext(watched)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await rpc.drain(0)


@pytest.mark.parametrize("is_on", [True, False])
async def test_reflection_tells_the_service(is_on: bool) -> None:
    async with serving(Grpc(reflection=is_on)) as (_, client):
        stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10)
        if not is_on:
            assert (await _failed(call)).code() is grpc.StatusCode.UNIMPLEMENTED
            return
        names = {each.name for each in (await anext(aiter(call))).list_services_response.service}
        assert {"tailhold.v1.Rag", "grpc.health.v1.Health"} <= names


def test_every_failure_has_a_code() -> None:
    for failure in Failure:
        status = status_of(ServeError(failure, "said", param="field", code="why", retry_after_seconds=3))
        assert status.code
        assert status.message == "said"
        assert len(status.details) == 3


def test_a_program_that_drains_ends_its_calls_well(start_stand_in: Starter) -> None:
    program = start_stand_in(stand_in=pace(0.05))
    with grpc.insecure_channel(f"127.0.0.1:{program.grpc_port}") as channel:
        ask = channel.unary_stream(ASK, api.AskRequest.SerializeToString, api.AskResponse.FromString)
        asked = api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text=QUESTION)])
        call = iter(ask(asked, timeout=30))
        next(call)
        program.process.terminate()
        assert list(call)[-1].ending.finish_reason == api.FINISH_REASON_STOP
        assert program.process.wait(30) == 0


async def test_an_answer_goes_on_with_the_callers_trace() -> None:
    ended: list[Traced] = []

    class Keeping(NoTracer):
        def begin(self, headers: Mapping[str, str]) -> TraceContext:
            assert headers["traceparent"] == "00-1"
            return TraceContext(7, 2, 1, sampled=True)

        def end(self, traced: Traced) -> None:
            ended.append(traced)

    async with serving() as (server, client):
        server.service.tracer = Keeping()
        asked = api.AskRequest(messages=[api.Message(role=api.ROLE_USER, text=QUESTION)])
        call = client._ask(asked, timeout=20, metadata=(("traceparent", "00-1"),))
        parts = [part async for part in call]
        assert dict(await call.initial_metadata())["x-tailhold-trace"] == f"{7:032x}"
    (traced,) = ended
    assert (traced.outcome, traced.asked.request_id) == ("ok", parts[0].opening.request_id)
    assert traced.pieces[-1].stage is Stage.TRANSPORT


def _retrieve(client: Client, **asked: Any) -> Any:
    call = client.channel.unary_unary(
        "/tailhold.v1.Rag/Retrieve", api.RetrieveRequest.SerializeToString, api.RetrieveResponse.FromString
    )
    return call(api.RetrieveRequest(**asked), timeout=20)


def _ingest(client: Client, parts: list[api.IngestRequest]) -> Any:
    call = client.channel.stream_unary(
        "/tailhold.v1.Rag/Ingest", api.IngestRequest.SerializeToString, api.IngestResponse.FromString
    )
    return call(iter(parts), timeout=20)


async def test_a_search_finds_what_http_finds() -> None:
    async with serving() as (server, client):
        found = await _retrieve(client, query=QUESTION, max_results=2)
        path = "/v1/vector_stores/vs_docs/search"
        over_http = (await server.public.post(path, json={"query": QUESTION, "max_num_results": 2})).json()["data"]
        assert [each.filename for each in found.passages] == [each["filename"] for each in over_http]
        assert [each.text for each in found.passages] == [each["content"][0]["text"] for each in over_http]
        only = {"type": "eq", "key": "title", "value": "Badges"}
        chosen = await _retrieve(client, query=QUESTION, filter=only)
        assert [dict(each.attributes)["title"] for each in chosen.passages] == ["Badges"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"query": " "}, "query"),
        ({"query": "a", "max_results": 51}, "max_num_results"),
        ({"query": "a", "filter": {"type": "x"}}, "filters"),
    ],
)
async def test_a_search_that_is_wrong_is_refused(asked: dict[str, Any], field: str) -> None:
    async with serving() as (_, client):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _retrieve(client, **asked)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field in str(caught.value.details())


async def test_documents_come_in_pieces_and_twice_is_once(tmp_path: Path) -> None:
    hello = api.IngestRequest(document=api.Document(filename="hello.md", attributes={"team": "ops"}))
    parts = [hello, api.IngestRequest(data=b"# Hello\n"), api.IngestRequest(data=b"All of it."), hello]
    async with serving(folder=tmp_path) as (server, client):
        first = await _ingest(client, parts)
        assert [(each.filename, each.bytes) for each in first.documents] == [("hello.md", 18), ("hello.md", 0)]
        assert first.documents[0].state == api.DOCUMENT_STATE_IN_PROGRESS
        assert (await _ingest(client, parts)).documents[0].file_id == first.documents[0].file_id
        listed = (await server.public.get("/v1/vector_stores/vs_docs/files")).json()["data"]
        assert first.documents[0].file_id in {each["id"] for each in listed}


async def test_a_document_that_is_wrong_leaves_nothing(tmp_path: Path) -> None:
    async with serving(folder=tmp_path) as (server, client):
        large = [api.IngestRequest(data=b"a" * 2**20) for _ in range(2)]
        named = api.IngestRequest(document=api.Document(filename="a.txt"))
        for parts, code in (
            ([api.IngestRequest(data=b"a")], grpc.StatusCode.INVALID_ARGUMENT),
            ([api.IngestRequest(document=api.Document())], grpc.StatusCode.INVALID_ARGUMENT),
            ([named, *large], grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _ingest(client, parts)
            assert caught.value.code() is code
        assert (await server.public.get("/v1/files")).json()["data"] == []


async def test_a_pipeline_without_uploads_says_so() -> None:
    async with serving() as (_, client):
        with pytest.raises(grpc.aio.AioRpcError, match=r"corpus\.uploads"):
            await _ingest(client, [api.IngestRequest(document=api.Document(filename="a.txt"))])


NAMED = api.IngestRequest(document=api.Document(filename="a.txt"))


def _ingesting(client: Client, encoder: Any = api.IngestRequest.SerializeToString) -> Any:
    """A call that the test writes to."""
    return client.channel.stream_unary("/tailhold.v1.Rag/Ingest", encoder, api.IngestResponse.FromString)(timeout=20)


async def _refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@pytest.mark.parametrize("sent", [[], [NAMED], [NAMED, api.IngestRequest(data=b"a")]])
async def test_a_client_that_sends_nothing_more_of_its_documents_is_sent_away(
    sent: list[api.IngestRequest], tmp_path: Path
) -> None:
    """As over HTTP, whose bodies have the same limit."""
    async with serving(receive_seconds=0.2, folder=tmp_path) as (_, client):
        call = _ingesting(client)
        for each in sent:
            await call.write(each)
        error = await _refused(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "0.2 s" in str(error.details())
    assert not [each for each in (tmp_path / "uploads").rglob("*") if each.is_file()]


@pytest.mark.parametrize("before", [[], [NAMED]])
async def test_an_empty_message_is_refused_by_name(before: list[api.IngestRequest], tmp_path: Path) -> None:
    """Any number of them would hold a call open."""
    async with serving(folder=tmp_path) as (_, client):
        error = await _refused(_ingest(client, [*before, api.IngestRequest()]))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "neither a `document` nor `data`" in str(error.details())
    assert not list((tmp_path / "uploads" / "files").iterdir())


@pytest.mark.parametrize("data", [b"", b"a"])
async def test_a_document_that_trickles_is_given_up(data: bytes, tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[api.IngestRequest]:
        yield NAMED
        while True:
            await asyncio.sleep(0.02)
            yield api.IngestRequest(data=data)

    async with running(folder=tmp_path) as server, asyncio.timeout(20):
        with pytest.raises(ServeError) as refused:
            await ingest(server.service.handlers.store, parts(), 0.2, nothing_recorded)
    assert refused.value.failure is Failure.TOO_SLOW
    assert not [each for each in (tmp_path / "uploads").rglob("*") if each.is_file()]


async def nothing_recorded(name: str, about: Any) -> None:
    """No audit here."""


@pytest.mark.parametrize("step", range(1, 5))
async def test_a_call_that_is_cancelled_while_a_document_is_published_publishes_all_of_it_or_nothing(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the disk is at: its content, what is known of it, its folder, or the folder of all."""
    steps, reached, go_on, fsync = count(1), threading.Event(), threading.Event(), os.fsync

    def held(handle: int) -> None:
        if next(steps) == step:
            reached.set()
            go_on.wait(10)
        fsync(handle)

    async with serving(folder=tmp_path) as (server, client):
        monkeypatch.setattr(os, "fsync", held)
        call = _ingesting(client)
        for each in (NAMED, api.IngestRequest(data=b"a" * 1000)):
            await call.write(each)
        await call.done_writing()
        assert await asyncio.to_thread(reached.wait, 10)
        call.cancel()
        await asyncio.sleep(0.1)  # what is there to be torn down is torn down now, or waits
        go_on.set()
        async with asyncio.timeout(10):
            while list((tmp_path / "uploads" / "coming").iterdir()):  # noqa: ASYNC110  with a time limit
                await asyncio.sleep(0.01)
        folder = server.service.handlers.store.folder
        assert (folder.survey()[1], folder.count()) == ({}, len(folder.entries()))
        assert len(folder.entries()) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_a_number_that_is_none_is_refused_by_the_fields_name(number: float, tmp_path: Path) -> None:
    async with serving(folder=tmp_path) as (_, client):
        document = api.IngestRequest(document=api.Document(filename="a.txt", attributes={"year": number}))
        compared = {"type": "gt", "key": "year", "value": number}
        nested = {"type": "and", "filters": [{"type": "in", "key": "year", "value": [1, number]}]}
        for call, field in (
            (_ingest(client, [document]), "attributes.year"),
            (_retrieve(client, query="a", filter=compared), "filters.value"),
            (_retrieve(client, query="a", filter=nested), "filters.filters[0].value[1]"),
            (_retrieve(client, query="a", min_score=number), "ranking_options.score_threshold"),
        ):
            error = await _refused(call)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert f"`{field}`" in str(error.details())


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        ),
        max_size=4,
    )
)
def test_a_struct_is_what_went_into_it(given: dict[str, Any]) -> None:
    struct = struct_pb2.Struct()
    struct.update(given)
    assert convert.plain(struct) == given


async def test_what_is_no_message_is_the_callers_mistake() -> None:
    async with serving() as (_, client):
        made = {
            "Ask": client.channel.unary_stream("/tailhold.v1.Rag/Ask"),
            "Retrieve": client.channel.unary_unary("/tailhold.v1.Rag/Retrieve"),
        }
        errors = {"Ask": await _failed(made["Ask"](b"\xff\xff", timeout=10))}
        errors["Retrieve"] = await _refused(made["Retrieve"](b"\xff\xff", timeout=10))
        errors["Ingest"] = await _refused(_written(client, b"\xff\xff"))
    for method, error in errors.items():
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"tailhold.v1.{method}Request" in str(error.details())


def _written(client: Client, message: bytes) -> Any:
    return client.channel.stream_unary("/tailhold.v1.Rag/Ingest")(iter([message]), timeout=10)


async def test_a_name_has_the_same_limit_as_over_http(tmp_path: Path) -> None:
    async with serving(folder=tmp_path) as (_, client):
        for size, fits in ((MOST_NAME_BYTES, True), (MOST_NAME_BYTES + 1, False), (100_000, False)):
            call = _ingest(client, [api.IngestRequest(document=api.Document(filename="a" * size))])
            if fits:
                assert (await call).documents
            else:
                error = await _refused(call)
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert f"`document.filename` has a name of {size} bytes" in str(error.details())
