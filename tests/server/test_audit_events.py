"""What is recorded beside answers: searches, and what clients do with documents."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest
from program_process import free_port
from rag_server import Running, client_of, content_part, running

from tailhold_api.audit import OnFailure, Recording, Records, Redaction
from tailhold_api.codec import digest
from tailhold_api.rpc import Grpc
from tailhold_server.access.caller import Caller
from tailhold_server.audit.record import Record
from tailhold_server.audit.verify import records_of, verify
from tailhold_server.rpc import rag_pb2 as api
from tailhold_server.rpc.ingest import ingest
from tailhold_server.rpc.rag import Rag
from tailhold_server.rpc.server import RpcServer

QUERY = "When does the office close?"
TEXTS = Recording(records=Records.TEXTS, redaction=(Redaction(name="office", pattern="office"),))


class AnyKey:
    """Whatever the key, it is the risk desk's."""

    async def caller(self, token: str) -> Caller:
        return Caller(token, "risk")


def of_kind(root: Path, kind: str) -> list[Record]:
    return [record for record in records_of(root) if record["kind"] == kind]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def found(server: Running, query: Any = QUERY, **fields: Any) -> Any:
    headers = {"authorization": "Bearer desk-7"}
    return await server.public.post(
        "/v1/vector_stores/vs_docs/search", json={"query": query, **fields}, headers=headers
    )


async def test_a_search_leaves_who_asked_what_and_which_passages_went_out(chained: Any, tmp_path: Path) -> None:
    async with running(authenticator=AnyKey()) as server:
        server.service.auditor = chained()
        wanted = {"type": "eq", "key": "title", "value": "Hours"}
        plain = await found(server)
        several = await found(server, [QUERY, "something else"], filters=wanted)
        tuned = server.service.tuning()
        await server.service.auditor.close()
    first, second = of_kind(tmp_path, "search")
    assert first["request"] == plain.headers["x-request-id"] != second["request"] == several.headers["x-request-id"]
    assert (first["client"], first["tenant"], first["surface"]) == ("desk-7", "risk", "vector_stores")
    assert first["revision"] == tuned["revision"]
    assert first["digests"]["content"] == tuned["contentDigest"]
    assert first["digests"]["snapshot"] == tuned["snapshot"]
    assert first["queries"] == [{"sha256": sha256(QUERY)}]
    assert first["chunks"] == [{"key": each["key"], "score": each["score"]} for each in plain.json()["data"]]
    assert first["chunks"]
    assert [first["filtered"], second["filtered"]] == [False, True]
    assert [each["sha256"] for each in second["queries"]] == [sha256(QUERY), sha256("something else")]
    assert "office" not in "".join(map(str, records_of(tmp_path))), "no text"
    assert verify(tmp_path).findings == ()


async def test_a_search_over_grpc_is_recorded_alike(chained: Any, tmp_path: Path) -> None:
    async with running() as server:
        server.service.auditor = chained()
        rpc, port = RpcServer(server.service, Grpc()), free_port()
        await rpc.start("127.0.0.1", port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary(
                "/tailhold.v1.Rag/Retrieve",
                api.RetrieveRequest.SerializeToString,
                api.RetrieveResponse.FromString,
            )(api.RetrieveRequest(query=QUERY), timeout=20)
            passages = (await call).passages
            metadata = dict(await call.initial_metadata())
        await rpc.drain(0)
        await server.service.auditor.close()
    (record,) = of_kind(tmp_path, "search")
    assert (record["surface"], record["client"]) == ("grpc", "anonymous")
    assert record["request"] == metadata["x-request-id"]
    assert [each["key"] for each in record["chunks"]] == [each.key for each in passages]


async def test_texts_of_searches_are_kept_redacted(chained: Any, tmp_path: Path) -> None:
    async with running(content=content_part(recording=TEXTS), authenticator=AnyKey()) as server:
        server.service.auditor = chained()
        await found(server)
        await server.service.auditor.close()
    (record,) = of_kind(tmp_path, "search")
    assert record["texts"] == ["When does the [redacted] close?"]
    assert record["queries"] == [{"sha256": sha256(QUERY)}]


@pytest.mark.parametrize("step", range(1, 5))
async def test_a_document_that_is_kept_though_its_call_is_cancelled_has_its_record(
    step: int, chained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the disk is at."""
    steps, reached, go_on, fsync = count(1), threading.Event(), threading.Event(), os.fsync

    def held(handle: int) -> None:
        if threading.current_thread().name.startswith("uploads") and next(steps) == step:
            reached.set()
            go_on.wait(10)
        fsync(handle)

    async def parts() -> AsyncIterator[api.IngestRequest]:
        yield api.IngestRequest(document=api.Document(filename="a.txt"))
        yield api.IngestRequest(data=b"x")

    async with running(folder=tmp_path / "volume") as server:
        server.service.auditor = chained()
        rag = Rag(server.service)

        async def record(name: str, about: Any) -> None:
            await rag._record(Caller("desk-7"), name, about)

        monkeypatch.setattr(os, "fsync", held)
        call = asyncio.ensure_future(ingest(server.service.handlers.store, parts(), 20, record))
        assert await asyncio.to_thread(reached.wait, 10)
        call.cancel()
        await asyncio.wait({call}, timeout=0.1)
        go_on.set()
        await asyncio.wait({call})
        await asyncio.wait(server.service.handlers.store._threads._tasks, timeout=10)
        await server.service.auditor.close()
        kept = set(server.service.handlers.store.folder.survey()[0])
    told = {each["files"][0]["id"] for each in of_kind(tmp_path, "file") if each["action"] == "uploaded"}
    assert kept == told


@pytest.mark.parametrize("on_failure", list(OnFailure))
async def test_what_cannot_be_recorded_is_not_found(
    chained: Any, tmp_path: Path, on_failure: OnFailure, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    content = content_part(recording=Recording(on_failure=on_failure))
    async with running(content=content, authenticator=AnyKey()) as server:
        server.service.auditor = chained()
        with monkeypatch.context() as patched:
            patched.setattr("tailhold_server.audit.segment.os.write", full)
            answer = await found(server)
        assert (await found(server)).status_code == 200
        await server.service.auditor.close()
    refuses = on_failure is OnFailure.REFUSE
    assert answer.status_code == (503 if refuses else 200)
    assert ("data" in answer.json()) != refuses
    assert [each["answers"] for each in of_kind(tmp_path, "lost")] == ([] if refuses else [1])
    assert len(of_kind(tmp_path, "search")) == 1


async def test_searches_and_files_can_be_left_out_while_the_server_runs(chained: Any, tmp_path: Path) -> None:
    async with running(authenticator=AnyKey()) as server:
        server.service.auditor = chained()
        neither = content_part(recording=Recording(searches=False, files=False))
        server.service.put_content(server.service.contents.load(neither))
        await found(server)
        key = (await found(server)).json()["data"][0]["key"]
        read = await server.public.get(f"/v1/sources/{key}", headers={"authorization": "Bearer desk-7"})
        assert read.status_code == 200
        server.service.put_content(server.service.contents.load(content_part()))
        await found(server)
        await server.service.auditor.close()
    assert [each["kind"] for each in records_of(tmp_path)] == ["opened", "search", "stopped"]


async def test_a_search_that_is_refused_leaves_no_record(chained: Any, tmp_path: Path) -> None:
    async with running(authenticator=AnyKey()) as server:
        server.service.auditor = chained()
        for query in ("", [""], 7):
            assert (await found(server, query)).status_code == 400
        await server.service.auditor.close()
    assert of_kind(tmp_path, "search") == []


async def test_what_a_client_does_with_documents_is_recorded(chained: Any, tmp_path: Path) -> None:
    root = tmp_path / "audit"
    async with running(folder=tmp_path) as server:
        server.service.auditor = chained(root)
        client = client_of(server)
        file = await client.files.create(file=("hello.md", b"# Hello\n"), purpose="assistants")
        await client.vector_stores.files.create("vs_docs", file_id=file.id)
        await client.files.content(file.id)
        batch = await client.vector_stores.file_batches.create("vs_docs", file_ids=[file.id])
        await client.vector_stores.file_batches.cancel(batch.id, vector_store_id="vs_docs")
        await client.vector_stores.files.create("vs_docs", file_id=file.id)
        await client.vector_stores.files.delete(file.id, vector_store_id="vs_docs")
        (corpus, *_) = (await client.vector_stores.files.list("vs_docs")).data
        await client.vector_stores.files.content(corpus.id, vector_store_id="vs_docs")
        key = (await client.vector_stores.search("vs_docs", query=QUERY)).model_dump()["data"][0]["key"]
        assert (await server.public.get(f"/v1/sources/{key}")).status_code == 200
        await client.files.delete(file.id)
        assert (await server.public.delete(f"/v1/files/{file.id}")).status_code == 404
        await server.service.auditor.close()
    own = {"id": file.id, "sha256": sha256("# Hello\n")}
    told = [(each["surface"], each["action"], each["files"]) for each in of_kind(root, "file")]
    assert [each for each in told if each[0] != "sources"] == [
        ("files", "uploaded", [own]),
        ("vector_stores", "added", [own]),
        ("files", "read", [own]),
        ("vector_stores", "added", [own]),
        ("vector_stores", "takenOut", [own]),
        ("vector_stores", "added", [own]),
        ("vector_stores", "takenOut", [own]),
        ("vector_stores", "read", [{"id": corpus.id}]),
        ("files", "deleted", [own]),
    ]
    ((_, action, (passage,)),) = [each for each in told if each[0] == "sources"]
    assert (action, passage["chunk"], passage["id"][:5]) == ("read", key, "file-")
    assert "hello.md" not in "".join(map(str, records_of(root))), "names are texts"


async def test_nothing_is_deleted_whose_record_cannot_be_written(
    chained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder=tmp_path) as server:
        server.service.auditor = chained(tmp_path / "audit")
        client = client_of(server)
        file = await client.files.create(file=("hello.md", b"# Hello\n"), purpose="assistants")
        with monkeypatch.context() as patched:
            patched.setattr("tailhold_server.audit.segment.os.fdatasync", lambda _: 1 / 0)
            assert (await server.public.delete(f"/v1/files/{file.id}")).status_code == 503
        assert (await client.files.retrieve(file.id)).id == file.id
        await client.files.delete(file.id)
        await server.service.auditor.close()


def test_an_upgrade_changes_no_digest_of_what_is_recorded() -> None:
    assert digest(Recording()) == digest(Recording(searches=True, files=True)) == sha256("{}")
