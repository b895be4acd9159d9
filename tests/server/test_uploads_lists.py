"""Lists of uploads: walked while files go, and read from what is known of them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rag_server import Running, running

from tailhold_server.testing import StandInDocument, stand_in_index
from tailhold_server.uploads import known
from tailhold_server.uploads.entry import ABOUT, ADDED, CONTENT, Added
from tailhold_server.uploads.folder import BATCHES, CLEAR_SECONDS, FILES, GONE, Folder
from tailhold_server.uploads.known import AGAIN_SECONDS, STEP_SECONDS, Known
from tailhold_server.uploads.left import BATCH_SECONDS, GONE_SECONDS, Batch

STORE = "/v1/vector_stores/vs_docs/files"
ID = "vsfb_" + "a" * 32


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def put(folder: Folder, name: str, now: int = 7) -> str:
    folder.prepare(0)
    incoming = folder.receive()
    incoming.write(name.encode())
    return incoming.finish(name, "assistants", now)[0]


async def sent(server: Running, number: int) -> str:
    form = {"file": (f"{number}.txt", b"x"), "purpose": (None, "assistants")}
    name: str = (await server.public.post("/v1/files", files=form)).json()["id"]
    (await server.public.post(STORE, json={"file_id": name})).raise_for_status()
    return name


# A walk goes on behind what was deleted


async def walked(server: Running, path: str, order: str, drop: Callable[[str], Any]) -> list[str]:
    """By pages of two; `drop` is called with the cursor before the next page is asked for."""
    found, after = list[str](), {}
    while True:
        page = await server.public.get(path, params={"limit": 2, "order": order, **after})
        assert page.status_code == 200, page.text
        found += [each["id"] for each in page.json()["data"]]
        if not page.json()["has_more"]:
            return found
        after = {"after": found[-1]}
        await drop(found[-1])


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("path", ["/v1/files", STORE])
async def test_a_walk_goes_on_behind_a_file_that_was_deleted(path: str, order: str, tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        names = [await sent(server, number) for number in range(6)]

        async def drop(cursor: str) -> None:
            if cursor in names:
                assert (await server.public.delete(f"/v1/files/{cursor}")).status_code == 200

        found = await walked(server, path, order, drop)
    assert sorted(each for each in found if each in names) == sorted(names)


async def test_a_walk_goes_on_behind_a_file_that_was_taken_out_on_another_pod(tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        names = [await sent(server, number) for number in range(6)]

        async def drop(cursor: str) -> None:
            Folder(tmp_path / "uploads").take_out(cursor)

        found = await walked(server, STORE, "desc", drop)
    assert sorted(each for each in found if each in names) == sorted(names)


async def test_a_walk_through_one_state_goes_on_behind_a_file_that_left_it(tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        for number in range(3):
            await sent(server, number)
        done = await server.public.get(STORE, params={"filter": "completed", "limit": 1})
        page = await server.public.get(
            STORE, params={"filter": "in_progress", "order": "asc", "after": done.json()["data"][0]["id"]}
        )
    assert (page.status_code, len(page.json()["data"])) == (200, 3)


async def test_a_walk_goes_on_behind_a_document_that_the_new_index_has_not(tmp_path: Path) -> None:
    from rag_server import OTHER_SNAPSHOT, content_part

    other = stand_in_index([StandInDocument("Other", "Nothing of before.")], OTHER_SNAPSHOT)
    async with running(folder=tmp_path, other=other) as server:
        first = (await server.public.get(STORE, params={"limit": 1, "order": "asc"})).json()["data"][0]["id"]
        contents = server.service.contents
        contents.put(contents.load(content_part(OTHER_SNAPSHOT)))
        page = await server.public.get(STORE, params={"after": first, "order": "asc"})
    assert page.status_code == 200


@pytest.mark.parametrize("path", ["/v1/files", STORE])
@pytest.mark.parametrize("cursor", ["file-" + "0" * 32, "x", "../a"])
async def test_a_cursor_that_nobody_knows_is_refused_with_what_to_do(path: str, cursor: str, tmp_path: Path) -> None:
    async with running(folder=tmp_path) as server:
        refused = await server.public.get(path, params={"after": cursor})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "after")
    assert "begin without it" in refused.json()["error"]["message"]


def test_where_a_file_stood_is_known_on_every_pod_for_a_day(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    name = put(folder, "a.txt", 5)
    folder.add(name, Added(9))
    folder.take_out(name)
    folder.remove(name)
    stood = Folder(tmp_path).stood(name)
    assert stood is not None
    assert (stood.created_at, stood.added_at) == (5, 9)
    touched = (tmp_path / GONE / f"{name}.json").stat().st_mtime
    Folder(tmp_path).prepare(touched + GONE_SECONDS - 60)
    assert folder.stood(name) is not None
    Folder(tmp_path).prepare(touched + GONE_SECONDS + 60)
    assert folder.stood(name) is None


def test_a_volume_that_takes_no_note_still_takes_a_file_away(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    name = put(folder, "a.txt")
    (tmp_path / GONE).rmdir()
    (tmp_path / GONE).write_text("x")
    assert folder.remove(name)
    assert folder.entry(name) is None


# Batches


def test_a_batch_can_be_asked_for_for_a_month_and_is_cleared_then(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare(0)
    folder.keep_batch(ID, Batch(created_at=1, file_ids=()))
    touched = (tmp_path / BATCHES / f"{ID}.json").stat().st_mtime
    folder.prepare(touched + BATCH_SECONDS - 60)
    assert folder.batch(ID) is not None
    folder.prepare(touched + BATCH_SECONDS - 60 + CLEAR_SECONDS)
    assert folder.batch(ID) is None
    assert not list((tmp_path / BATCHES).iterdir())


# What is known of files


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The folders of files that were read."""
    read, entry_in = list[Any](), known.entry_in
    monkeypatch.setattr(known, "entry_in", lambda folder: (read.append(folder), entry_in(folder))[1])
    return read


def test_what_did_not_change_is_read_twice_and_then_no_more(tmp_path: Path, opened: list[Any]) -> None:
    folder, clock = Folder(tmp_path), Clock()
    for number in range(10):
        put(folder, str(number))
    files = Known(tmp_path / FILES, clock)
    reads = []
    for seconds in (0, STEP_SECONDS, 5, 10):
        clock.now, before = seconds, len(opened)
        assert len(files.look().whole) == 10
        reads.append(len(opened) - before)
    assert reads == [10, 10, 0, 0]


CHANGES: dict[str, Callable[[Folder, str], object]] = {
    "deleted": lambda folder, name: folder.remove(name),
    "added": lambda folder, name: folder.add(name, Added(3)),
    "taken out": lambda folder, name: (folder.add(name, Added(3)), folder.take_out(name)),
    "described": lambda folder, name: (folder.add(name, Added(3)), folder.describe(name, {"a": 1.0})),
    "another one": lambda folder, _: put(folder, "another"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_another_pod_changes_is_seen_with_the_next_look(
    change: Callable[[Folder, str], object], tmp_path: Path, opened: list[Any]
) -> None:
    folder, clock = Folder(tmp_path), Clock()
    name, _ = put(folder, "a"), [put(folder, str(number)) for number in range(9)]
    files = Known(tmp_path / FILES, clock)
    for clock.now in (0, STEP_SECONDS, 5):
        files.look()
    opened.clear()
    change(Folder(tmp_path), name)
    clock.now = 10
    assert dict(files.look().whole) == folder.survey()[0]
    assert len(opened) <= 1


def test_a_change_within_the_same_step_of_the_volumes_clock_is_seen_with_the_next_look(tmp_path: Path) -> None:
    """The times are those of before: nothing tells but the look that follows."""
    folder, clock = Folder(tmp_path), Clock()
    name = put(folder, "a")
    files = Known(tmp_path / FILES, clock)
    files.look()
    times = [(each, each.stat()) for each in (tmp_path / FILES / name, tmp_path / FILES)]
    folder.add(name, Added(3))
    for each, before in times:
        os.utime(each, ns=(before.st_atime_ns, before.st_mtime_ns))
    clock.now = STEP_SECONDS
    assert files.look().whole[name].added == Added(3)


@pytest.mark.parametrize("part", [ABOUT, ADDED, CONTENT])
def test_what_somebody_else_wrote_into_a_file_is_seen_within_two_minutes(part: str, tmp_path: Path) -> None:
    folder, clock = Folder(tmp_path), Clock()
    name, other = put(folder, "a"), put(folder, "b")
    folder.add(name, Added(3))
    files = Known(tmp_path / FILES, clock)
    for clock.now in (0, STEP_SECONDS, 5):
        files.look()
    (tmp_path / FILES / name / part).write_text("{cut")
    for _ in range(2):
        clock.now += AGAIN_SECONDS
        seen = files.look()
    assert (set(seen.whole), set(seen.damaged)) == ({other}, {name})


def test_of_many_files_a_tenth_is_read_again_with_a_look(tmp_path: Path, opened: list[Any]) -> None:
    folder, clock = Folder(tmp_path), Clock()
    for number in range(40):
        put(folder, str(number))
    files = Known(tmp_path / FILES, clock)
    for clock.now in (0, STEP_SECONDS):
        files.look()
    opened.clear()
    clock.now += AGAIN_SECONDS
    files.look()
    assert 0 < len(opened) <= 5


def test_a_look_at_one_file_reads_no_other(tmp_path: Path, opened: list[Any]) -> None:
    folder, clock = Folder(tmp_path), Clock()
    names = [put(folder, str(number)) for number in range(5)]
    files = Known(tmp_path / FILES, clock)
    files.look()
    opened.clear()
    folder.add(names[0], Added(3))
    folder.remove(names[1])
    assert files.look_at(names[0]).whole[names[0]].added == Added(3)
    assert names[1] not in files.look_at(names[1]).whole
    assert len(opened) == 1
