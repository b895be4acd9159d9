"""The folder of uploads, what may go wrong on its volume, and work that lets questions go first."""

import asyncio
import errno
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_server import client_of, content_part, running

from tailhold_api.serving import Batching
from tailhold_api.sources import ClaimFolder, Uploads
from tailhold_server.batcher import PATIENCE_SECONDS, Batcher
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handlers.embed import slices
from tailhold_server.handlers.filters import Comparing, Comparison, passes
from tailhold_server.ingest.report import DocumentFailure
from tailhold_server.ingest.sources import Found
from tailhold_server.refresh import is_due
from tailhold_server.routes.paging import Order, page
from tailhold_server.uploads.entry import Added
from tailhold_server.uploads.folder import COMING, LEFT_SECONDS, LOCK, Folder
from tailhold_server.uploads.names import shown_name, staged_digest
from tailhold_server.uploads.reading import read_uploads
from tailhold_server.uploads.turn import Turn


def kept(folder: Folder, name: str, data: bytes) -> str:
    folder.prepare(0)
    incoming = folder.receive()
    incoming.write(data)
    return incoming.finish(name, "assistants", 7)[0]


@given(st.text())
def test_a_name_is_one_step_of_a_path_whatever_it_was(name: str) -> None:
    shown = shown_name(name)
    assert shown not in ("", ".", "..")
    assert not set("/\\\0") & set(shown)
    assert len(shown.encode()) <= 255


def test_the_same_name_and_bytes_are_the_same_file_on_every_pod(tmp_path: Path) -> None:
    one, other = Folder(tmp_path), Folder(tmp_path)
    first = kept(one, "a.txt", b"hello")
    assert kept(other, "a.txt", b"hello") == first
    assert kept(other, "b.txt", b"hello") != first
    assert kept(other, "a.txt", b"hello!") != first
    assert len(one.entries()) == 3


def test_many_at_once_are_one_file(tmp_path: Path) -> None:
    """C95: a retry that overlaps with what it repeats."""
    threads = [threading.Thread(target=kept, args=(Folder(tmp_path), "a.txt", b"x" * 100_000)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(Folder(tmp_path).entries()) == 1
    assert not list((tmp_path / COMING).iterdir())


def test_what_a_crash_leaves_is_seen_by_nobody_and_cleared_away(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare(time.time())
    half = folder.receive()
    half.write(b"half")
    assert folder.entries() == {}
    folder.prepare(time.time() + LEFT_SECONDS - 60)
    assert len(list((tmp_path / COMING).iterdir())) == 1
    folder.prepare(time.time() + LEFT_SECONDS + 60)
    assert not list((tmp_path / COMING).iterdir())


@pytest.mark.parametrize(
    ("number", "failure"),
    [(errno.ENOSPC, Failure.FULL), (errno.EDQUOT, Failure.FULL), (errno.EIO, Failure.UNAVAILABLE)],
)
def test_a_volume_that_takes_no_more_is_said_and_nothing_is_left(
    number: int, failure: Failure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.prepare(0)
    incoming = folder.receive()
    incoming.write(b"hello")

    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ServeError) as refused:
        incoming.finish("a.txt", "assistants", 7)
    assert refused.value.failure is failure
    assert "corpus.uploads" in refused.value.message
    assert folder.entries() == {}
    assert not list((tmp_path / COMING).iterdir())


def test_a_file_that_is_deleted_takes_its_place_in_the_corpus_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    name = kept(folder, "a.txt", b"hello")
    assert folder.add(name, Added(1, {"team": "risk"}))
    assert folder.remove(name)
    assert (folder.entries(), folder.corpus(), folder.remove(name)) == ({}, {}, False)
    assert not folder.add(name, Added(2))
    assert kept(folder, "a.txt", b"hello") == name
    assert folder.corpus() == {}
    assert folder.add(name, Added(3))
    assert folder.corpus()[name][1] == Added(3)


def test_a_digest_of_a_corpus_is_that_of_its_files_alone() -> None:
    assert staged_digest([]) == ""
    assert staged_digest(["b", "a"]) == staged_digest(["a", "b"]) != staged_digest(["a"])


def test_a_build_reads_what_was_added_and_names_what_it_cannot(tmp_path: Path) -> None:
    uploads = Uploads(pvc=ClaimFolder(claim_name="uploads", path="docs"))
    assert list(read_uploads(uploads, tmp_path)) == []
    folder = Folder(tmp_path / "uploads" / "docs")
    names = [kept(folder, name, b"hello") for name in ("../a.txt", "b.txt", "c.txt")]
    for name in names[:2]:
        folder.add(name, Added(created_at=1))
    folder.path(names[1]).unlink()
    read = {each.path: each for each in read_uploads(uploads, tmp_path)}
    found = read[f"{names[0]}/a.txt"]
    assert isinstance(found, Found)
    assert (found.source, found.data) == ("uploads", b"hello")
    assert isinstance(read[f"uploads/{names[1]}"], DocumentFailure)
    assert len(read) == 2


async def test_a_file_that_the_build_could_not_read_has_failed_and_says_why(tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        file = await client_of(server).files.create(file=("a.xyz", b"x"), purpose="assistants")
        builds = tmp_path / "snapshots" / "builds"
        builds.mkdir(parents=True)
        failed = {"path": f"uploads/{file.id}/a.xyz", "reason": "unsupported", "hint": "no reader for this"}
        report = {"snapshot": "5" * 64, "documents": 1, "failedDocuments": 1, "chunks": 1, "reused": 0, "seconds": {}}
        (builds / ".json").write_text(__import__("json").dumps(report | {"failures": [failed]}))
    async with running(folder=tmp_path) as server:
        api = client_of(server)
        added = await api.vector_stores.files.create("vs_docs", file_id=file.id)
        assert (added.status, added.last_error and added.last_error.code) == ("failed", "unsupported_file")
        assert added.last_error is not None
        assert added.last_error.message == "no reader for this"


async def test_too_many_files_are_refused_with_the_field_that_says_so(tmp_path: Path) -> None:
    from rag_server import pod_part

    pod = pod_part(uploads=True)
    assert pod.uploads is not None
    few = pod.model_copy(update={"uploads": pod.uploads.model_copy(update={"max_files": 1})})
    async with running(pod=few, folder=tmp_path) as server:
        api = client_of(server)
        await api.files.create(file=("a.txt", b"x"), purpose="assistants")
        refused = await server.public.post(
            "/v1/files", files={"file": ("b.txt", b"y"), "purpose": (None, "assistants")}
        )
    assert refused.status_code == 400
    assert "corpus.uploads.maxFiles" in refused.json()["error"]["message"]


async def test_the_last_file_that_fits_can_be_sent_again_after_a_timeout(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare(0)
    for _ in range(2):
        incoming = folder.receive(1)
        incoming.write(b"x")
        incoming.finish("a.txt", "assistants", 7)
    assert folder.count() == 1


@pytest.mark.parametrize("pods", [1, 4])
def test_many_at_once_are_never_more_than_may_be(pods: int, tmp_path: Path) -> None:
    """Each folder is a pod's: nothing but the volume is shared."""
    folders = [Folder(tmp_path) for _ in range(pods)]
    for each in folders:
        each.prepare(0)
    refused = list[str]()
    together = threading.Barrier(12)

    def send(number: int) -> None:
        incoming = folders[number % pods].receive(5)
        incoming.write(b"x")
        together.wait(10)
        try:
            incoming.finish(f"{number}.txt", "assistants", 7)
        except ServeError as error:
            refused.append(str(error.code))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (folders[0].count(), refused) == (5, ["too_many_files"] * 7)
    assert not list((tmp_path / COMING).iterdir())


def test_a_pod_that_holds_the_volumes_lock_is_waited_for_and_then_named(tmp_path: Path) -> None:
    one, other = Turn(tmp_path / LOCK), Turn(tmp_path / LOCK)
    with one.taken(), pytest.raises(ServeError, match="is held by a process"), other.taken(seconds=0.01):
        pass
    with other.taken(seconds=0.01):
        pass


def test_a_volume_without_locks_is_said_once_and_takes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def without(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without)
    folder = Folder(tmp_path)
    kept(folder, "a.txt", b"x")
    kept(folder, "b.txt", b"x")
    assert folder.count() == 2
    assert len([each for each in caplog.records if "knows no locks" in each.getMessage()]) == 1


@pytest.mark.parametrize(
    ("staged", "since", "now", "due"),
    [("", None, 0, False), ("a", None, 0, True), ("a", 0, 299, False), ("a", 0, 300, True), ("", 0, 999, False)],
)
def test_without_a_cluster_an_index_is_built_when_it_is_time(staged: str, since: Any, now: float, due: bool) -> None:
    assert is_due(staged, "", since=since, now=now, least_seconds=300) is due


@given(st.lists(st.integers(1, 300), max_size=60))
def test_slices_hold_each_text_once_in_order_and_cost_no_more_than_a_long_question(counts: list[int]) -> None:
    found = list(slices(counts, 256))
    assert [place for each in found for place in each] == list(range(len(counts)))
    assert all(len(each) == 1 or max(counts[place] for place in each) * len(each) <= 256 for each in found)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text("abc", min_size=2, max_size=3)), unique_by=lambda each: each[1]),
    st.integers(1, 4),
    st.sampled_from(Order),
)
def test_pages_hold_each_item_once_in_order(items: list[tuple[int, str]], limit: int, order: Order) -> None:
    walked: list[tuple[int, str]] = []
    after, more = None, True
    while more:
        listed, more = page(items, lambda each: each, limit=limit, order=order, after=after)
        walked += listed
        after = listed[-1] if listed else None
    assert walked == sorted(items, reverse=order is Order.DESC)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text("abc", min_size=2, max_size=3)), unique_by=lambda each: each[1]),
    st.integers(1, 4),
    st.sampled_from(Order),
    st.data(),
)
def test_a_walk_meets_what_stays_once_in_order_whatever_is_deleted_meanwhile(
    items: list[tuple[int, str]], limit: int, order: Order, data: st.DataObject
) -> None:
    there, walked = list(items), list[tuple[int, str]]()
    after, more = None, True
    while more:
        listed, more = page(there, lambda each: each, limit=limit, order=order, after=after)
        walked += listed
        after = listed[-1] if listed else None
        gone = data.draw(st.sets(st.sampled_from(there))) if there else set()
        there = [each for each in there if each not in gone]
    assert walked == sorted(walked, reverse=order is Order.DESC)
    assert set(there) <= set(walked)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.text("abc", min_size=2, max_size=3)), unique_by=lambda each: each[1]),
    st.tuples(st.integers(0, 3), st.text("abc", min_size=2, max_size=3)),
    st.sampled_from(Order),
)
def test_before_and_after_a_place_are_all_but_what_stands_there(
    items: list[tuple[int, str]], there: tuple[int, str], order: Order
) -> None:
    before, _ = page(items, lambda each: each, limit=100, order=order, before=there)
    after, _ = page(items, lambda each: each, limit=100, order=order, after=there)
    ranked = sorted(items, reverse=order is Order.DESC)
    assert before + after == [each for each in ranked if each != there]


@pytest.mark.parametrize(
    ("how", "value", "found", "fits"),
    [
        ("eq", "a", "a", True), ("eq", 1, True, False), ("eq", 1.0, 1, True), ("ne", "a", "b", True),
        ("gt", 1, 2, True), ("gt", 2, 2, False), ("gte", 2, 2, True), ("lt", "b", "a", True), ("lte", 2, 3, False),
        ("gt", 1, "2", False), ("lt", True, False, False), ("in", ["a", 1], 1, True), ("nin", ["a"], "b", True),
        ("eq", "a", None, False), ("ne", "a", None, True), ("nin", ["a"], None, True), ("lt", 1, None, False),
    ],
)  # fmt: skip
def test_a_comparison(how: str, value: Any, found: Any, fits: bool) -> None:
    attributes = {} if found is None else {"key": found}
    values = tuple(value) if isinstance(value, list) else (value,)
    assert passes(Comparison("key", Comparing(how), values), attributes) is fits


async def test_questions_go_first_and_patient_work_is_done_all_the_same() -> None:
    """C68."""
    order: list[str] = []
    held = threading.Event()

    def work(items: Any) -> Any:
        held.wait(10)
        order.extend(items)
        return items

    batcher: Batcher[str, str] = Batcher(work, lambda: Batching(max_batch=1, max_wait_milliseconds=0))
    batcher.start()
    first = asyncio.ensure_future(batcher.submit("first"))
    await asyncio.sleep(0.05)
    patient = asyncio.ensure_future(batcher.when_idle(lambda: order.append("patient") or "done"))
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(batcher.submit(f"later{n}")) for n in range(3)]
    await asyncio.sleep(0)
    held.set()
    await asyncio.gather(first, *later, patient)
    assert order == ["first", "later0", "later1", "later2", "patient"]
    assert patient.result() == "done"
    await batcher.close()


async def test_patient_work_is_overdue_after_a_while() -> None:
    batcher: Batcher[str, str] = Batcher(lambda items: list(items), lambda: Batching())
    waiting = asyncio.ensure_future(batcher.when_idle(lambda: "done"))
    await asyncio.sleep(0)
    batcher._patient[0].since -= PATIENCE_SECONDS + 1
    question = asyncio.ensure_future(batcher.submit("question"))
    await asyncio.sleep(0)
    task = batcher._next()
    assert task is not None
    assert len(batcher._queue) == 1
    batcher._loop = asyncio.get_running_loop()
    task()
    assert await waiting == "done"
    question.cancel()


async def test_a_failing_embedder_is_an_error_of_its_own_text() -> None:
    from tailhold_server.testing import StandInEncoder
    from tailhold_server.vectors import NotFiniteError

    class Broken(StandInEncoder):
        def encode(self, texts: Any) -> Any:
            if any("bad" in each for each in texts):
                raise NotFiniteError((0,))
            return super().encode(texts)

    async with running(encoder=Broken(), content=content_part()) as server:
        failed = await server.public.post("/v1/embeddings", json={"input": ["word " * 250, "bad"]})
    assert (failed.status_code, failed.json()["error"]["param"]) == (500, "input[1]")
