"""Uploads under clients that race each other, volumes that others wrote to, and servers that are killed."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_process import starter
from rag_server import DOCUMENTS, OTHER_SNAPSHOT, Running, content_part, pod_part, running

from tailhold_api.sources import ClaimFolder, Uploads
from tailhold_server.errors import ServeError
from tailhold_server.ingest.report import DocumentFailure
from tailhold_server.routes.multipart import FormReader
from tailhold_server.testing import StandInDocument, stand_in_index
from tailhold_server.uploads.entry import ADDED, Added
from tailhold_server.uploads.folder import COMING, FILES, GONE, LEFT_SECONDS, LOCK, Folder
from tailhold_server.uploads.names import MOST_NAME_BYTES, upload_id
from tailhold_server.uploads.reading import read_uploads

SECRET = "The office safe closes with 4711."
SHA = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
NAME = upload_id("secret.txt", SHA)
"""Of `secret.txt` with the content x."""
STORE = "/v1/vector_stores/vs_docs"


def put(folder: Folder, name: str = "secret.txt", data: bytes = b"x") -> str:
    folder.prepare(0)
    incoming = folder.receive()
    incoming.write(data)
    return incoming.finish(name, "assistants", 7)[0]


async def post(server: Running, name: str = "secret.txt", data: bytes = b"x") -> httpx.Response:
    form = {"file": (name, data), "purpose": (None, "assistants")}
    return await server.public.post("/v1/files", files=form)


async def add(server: Running, name: str = NAME) -> httpx.Response:
    return await server.public.post(f"{STORE}/files", json={"file_id": name})


async def delete(server: Running, name: str = NAME) -> httpx.Response:
    return await server.public.delete(f"/v1/files/{name}")


async def is_found(server: Running) -> bool:
    found = await server.public.post(f"{STORE}/search", json={"query": "office safe closes"})
    return NAME in {each["file_id"] for each in found.json()["data"]}


@asynccontextmanager
async def holding(folder: Path) -> AsyncIterator[Running]:
    """A server whose index holds the upload `secret.txt`."""
    index = stand_in_index(
        [*DOCUMENTS, StandInDocument("Secret", SECRET)], OTHER_SNAPSHOT, uploads={2: f"{NAME}/secret.txt"}
    )
    async with running(folder=folder, other=index, content=content_part(OTHER_SNAPSHOT)) as server:
        yield server


def left(root: Path) -> list[Path]:
    return list((root / "uploads" / COMING).iterdir())


# Clients that race


async def test_a_file_that_is_deleted_while_it_is_added_is_gone(tmp_path: Path) -> None:
    async with holding(tmp_path) as server:
        for _ in range(20):
            assert (await post(server)).json()["id"] == NAME
            assert (await add(server)).status_code == 200
            assert await is_found(server)
            added, deleted = await asyncio.gather(add(server), delete(server))
            assert (added.status_code in (200, 404), deleted.status_code) == (True, 200)
            assert not await is_found(server)
            await post(server)
            assert not await is_found(server), "what was left of adding it brings it back"
            await delete(server)
    assert not [path for path in (tmp_path / "uploads").rglob("*") if NAME in path.name and path.parent.name != GONE]


def test_a_file_that_goes_in_the_midst_of_being_added_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    put(folder)
    read = folder.entry

    def then_gone(name: str) -> Any:
        entry = read(name)
        assert Folder(tmp_path).remove(name)
        return entry

    monkeypatch.setattr(folder, "entry", then_gone)
    assert folder.add(NAME, Added(1)) is False
    left_over = {each.relative_to(tmp_path).parts[0] for each in tmp_path.rglob("*") if not each.is_dir()}
    assert left_over == {LOCK, GONE}


def test_new_attributes_bring_back_nothing_that_was_taken_out_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    put(folder)
    folder.add(NAME, Added(1))
    read = folder.entry

    def then_out(name: str) -> Any:
        entry = read(name)
        assert Folder(tmp_path).take_out(name)
        return entry

    monkeypatch.setattr(folder, "entry", then_out)
    folder.describe(NAME, {"team": "risk"})
    assert folder.corpus() == {}


def test_a_file_that_is_taken_out_while_it_is_read_is_whole_and_not_in_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    put(folder)
    folder.add(NAME, Added(1))
    names = os.listdir

    def then_out(place: Any) -> list[str]:
        found = names(place)
        if ADDED in found:
            monkeypatch.setattr(os, "listdir", names)
            assert Folder(tmp_path).take_out(NAME)
        return found

    monkeypatch.setattr(os, "listdir", then_out)
    whole, damaged = folder.survey()
    assert (damaged, whole[NAME].added) == ({}, None)


async def test_a_look_that_ends_late_takes_back_no_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with holding(tmp_path) as server:
        await post(server)
        await add(server)
        seen, go_on, look = threading.Event(), threading.Event(), Folder.corpus

        def held(folder: Folder, *changed: str) -> Any:
            found = look(folder, *changed)
            if not seen.is_set():
                seen.set()
                go_on.wait(10)
            return found

        monkeypatch.setattr(Folder, "corpus", held)
        late = asyncio.ensure_future(server.public.get(STORE))
        await asyncio.to_thread(seen.wait, 10)
        await delete(server)
        go_on.set()
        await late
        assert not await is_found(server)


async def test_a_file_that_is_deleted_while_it_is_read_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    data = os.urandom(900_000)
    async with running(folder=tmp_path) as server:
        for _ in range(40):
            name = (await post(server, "a.bin", data)).json()["id"]
            got, deleted = await asyncio.gather(server.public.get(f"/v1/files/{name}/content"), delete(server, name))
            assert deleted.status_code == 200
            assert (got.status_code, got.content == data) in ((200, True), (404, False))
        name = (await post(server, "a.bin", data)).json()["id"]
        _, file = await server.service.handlers.store.content(name)
        with file:
            assert (await delete(server, name)).status_code == 200
            assert file.read() == data


def test_an_upload_that_is_given_up_while_it_is_published_is_whole_or_not_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare(0)
    for number in range(150):
        incoming = folder.receive()
        incoming.write(b"x" * 1000)
        give_up = threading.Timer(number % 15 * 0.0002, incoming.abandon)
        give_up.start()
        with suppress(ServeError):
            incoming.finish(f"{number}.txt", "assistants", 7)
        give_up.join()
    whole, damaged = folder.survey()
    assert damaged == {}
    assert len(whole) == folder.count() == len(list((tmp_path / FILES).iterdir()))
    assert not list((tmp_path / COMING).iterdir())


async def test_a_client_that_leaves_before_its_first_byte_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go_on, receive = threading.Event(), threading.Event(), Folder.receive

    def held(folder: Folder, *most: int) -> Any:
        incoming = receive(folder)
        made.set()
        go_on.wait(10)
        return incoming

    monkeypatch.setattr(Folder, "receive", held)
    async with running(folder=tmp_path) as server:
        upload = asyncio.ensure_future(post(server))
        await asyncio.to_thread(made.wait, 10)
        upload.cancel()
        await asyncio.wait([upload])
        go_on.set()
        await asyncio.to_thread(lambda: None)
    assert not left(tmp_path)


# A volume that somebody else wrote to


def _emptied(path: Path) -> Path:
    path.rename(path.with_name("moved"))
    return path


DAMAGE: dict[str, Callable[[Path], object]] = {
    "about that is no JSON": lambda place: (place / "about.json").write_text("{"),
    "about that is a folder": lambda place: _emptied(place / "about.json").mkdir(),
    "no about": lambda place: (place / "about.json").unlink(),
    "no content": lambda place: (place / "content").unlink(),
    "content that is cut": lambda place: (place / "content").write_bytes(b""),
    "content that is a folder": lambda place: _emptied(place / "content").mkdir(),
    "content that is a pipe": lambda place: os.mkfifo(_emptied(place / "content")),
    "content that is a link": lambda place: _emptied(place / "content").symlink_to("/etc/hostname"),
    "content that is a link to itself": lambda place: _emptied(place / "content").symlink_to("content"),
    "nothing in it": lambda place: [each.unlink() for each in place.iterdir()],
    "a link to itself": lambda place: _emptied(place).symlink_to(place.name),
    "a link to what is elsewhere": lambda place: _emptied(place).symlink_to("moved"),
    "a plain file": lambda place: _emptied(place).write_text("x"),
    "a pipe": lambda place: os.mkfifo(_emptied(place)),
    "a mark that is no JSON": lambda place: (place / ADDED).write_text("{"),
    "a mark that is a folder": lambda place: _emptied(place / ADDED).mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_file_takes_no_other_away_is_named_and_can_be_deleted(
    damage: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with holding(tmp_path) as server:
        other = (await post(server, "other.txt", b"y")).json()["id"]
        await post(server)
        for name in (NAME, other):
            assert (await add(server, name)).status_code == 200
        damage(tmp_path / "uploads" / FILES / NAME)
        caplog.set_level(logging.ERROR)
        for path in ("/v1/files", f"{STORE}/files"):
            listed = await server.public.get(path)
            assert (listed.status_code, other in listed.text, NAME in listed.text) == (200, True, False), path
        assert len([each for each in caplog.records if NAME in each.getMessage()]) == 1
        assert not await is_found(server)
        for path in (f"/v1/files/{NAME}", f"/v1/files/{NAME}/content"):
            refused = await server.public.get(path)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_damaged")
        assert (await delete(server)).status_code == 200
        assert (await delete(server)).status_code == 404
        assert not await is_found(server)
        assert (await server.public.get(f"/v1/files/{other}/content")).content == b"y"
    assert not left(tmp_path)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_healed_by_sending_it_again(damage: Callable[[Path], object], tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    put(folder)
    folder.add(NAME, Added(1))
    damage(tmp_path / FILES / NAME)
    assert put(folder) == NAME
    kept = folder.content(NAME)
    assert kept is not None
    with kept[1] as file:
        assert file.read() == b"x"


def test_bytes_that_changed_on_the_volume_are_healed_by_sending_them_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    put(folder)
    (tmp_path / FILES / NAME / "content").write_bytes(b"y")
    put(folder)
    assert (tmp_path / FILES / NAME / "content").read_bytes() == b"x"


def test_a_build_follows_no_link_and_names_what_is_damaged(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "uploads")
    put(folder)
    folder.add(NAME, Added(1))
    outside = tmp_path / "outside"
    outside.write_text("y")
    _emptied(tmp_path / "uploads" / FILES / NAME / "content").symlink_to(outside)
    (read,) = read_uploads(Uploads(pvc=ClaimFolder(claim_name="uploads")), tmp_path)
    assert isinstance(read, DocumentFailure)
    assert (read.path, "content" in read.hint) == (f"uploads/{NAME}", True)


@pytest.mark.parametrize("name", [FILES, COMING, "batches"])
async def test_a_folder_that_is_a_plain_file_is_said_and_never_a_fault_of_ours(name: str, tmp_path: Path) -> None:
    async with holding(tmp_path) as server:
        await post(server)
        _emptied(tmp_path / "uploads" / name).write_text("x")
        for answer in (
            await server.public.get("/v1/files"),
            await server.public.get(f"/v1/files/{NAME}"),
            await server.public.get(f"/v1/files/{NAME}/content"),
            await post(server, "b.txt"),
            await add(server),
            await delete(server),
            await server.public.delete(f"{STORE}/files/{NAME}"),
            await server.public.post(f"{STORE}/file_batches", json={"file_ids": [NAME]}),
            await server.public.get(f"{STORE}/file_batches/vsfb_{'0' * 32}"),
        ):
            assert answer.status_code in (200, 404, 503), answer.text
        refused = await post(server, "b.txt")
        assert refused.status_code == 503
        assert "corpus.uploads" in refused.json()["error"]["message"]


async def test_where_nobody_can_tell_what_was_deleted_no_upload_is_found(tmp_path: Path) -> None:
    (tmp_path / "uploads").write_text("no folder")
    async with holding(tmp_path) as server:
        assert not await is_found(server)
        assert (await server.ask()).status_code == 200


def test_whatever_a_crash_left_is_cleared_once_it_is_old(tmp_path: Path) -> None:
    folder, coming = Folder(tmp_path), tmp_path / COMING
    folder.prepare(0)
    (coming / "file").write_text("x")
    (coming / "folder" / "deep").mkdir(parents=True)
    (coming / "link").symlink_to("/nonexistent")
    (coming / "loop").symlink_to("loop")
    folder.prepare(time.time() + LEFT_SECONDS - 60)
    assert len(list(coming.iterdir())) == 4
    folder.prepare(time.time() + LEFT_SECONDS + 60)
    assert not list(coming.iterdir())


def test_a_file_that_still_comes_is_not_taken_for_what_a_crash_left(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.prepare(0)
    incoming = folder.receive()
    incoming.write(b"a")
    (aside,) = (tmp_path / COMING).iterdir()
    os.utime(aside, (0, 0))
    incoming.write(b"b")
    folder.prepare(time.time())
    name, _ = incoming.finish("a.txt", "assistants", 7)
    assert (tmp_path / FILES / name / "content").read_bytes() == b"ab"


def test_a_server_that_is_killed_in_mid_upload_leaves_nothing_that_is_found(tmp_path: Path) -> None:
    root = tmp_path / "claims" / "uploads"
    root.mkdir(parents=True)
    with starter(tmp_path) as start:
        server = start(pod=pod_part(uploads=True))
        head = (
            b"POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-type: multipart/form-data; boundary=x\r\n"
            b"content-length: 500000\r\n\r\n"
            b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        )
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(head + b"y" * 200_000)
            server.wait_until(lambda: any(each.stat().st_size > 100_000 for each in root.glob("coming/*/content")))
            server.process.send_signal(signal.SIGKILL)
            server.process.wait(10)
        (aside,) = (root / COMING).iterdir()
        for each in (aside, aside / "content"):
            os.utime(each, (time.time() - LEFT_SECONDS - 60,) * 2)
        again = start(pod=pod_part(uploads=True))
        assert httpx.get(f"{again.url}/v1/files", trust_env=False).json()["data"] == []
        assert not list((root / COMING).iterdir())
        assert not list((root / FILES).iterdir())


# Names and values


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b"name=file; filename*=UTF-8''na%C3%AFve.txt", "na\u00efve.txt"),
        (b"name=file; filename=\"x.txt\"; filename*=UTF-8''na%C3%AFve.txt", "na\u00efve.txt"),
        (b"name=file; filename*=iso-8859-1'en'%A3.txt", "\u00a3.txt"),
        (b'name=file; filename*0=a; filename*1=".txt"', "a.txt"),
        (b"name=file; filename=\"a;filename*=UTF-8''b.txt\"", "a;filename*=UTF-8''b.txt"),
        (b"name=file; filename*=UTF-8''%ff", None),
        (b"name=file; filename*=koi8-r''a", None),
        (b"name=file; filename*=a", None),
        (b'name=file; filename="' + b"a" * (MOST_NAME_BYTES + 1) + b'"', None),
    ],
)
async def test_an_extended_file_name_is_taken_or_refused_by_name(
    disposition: bytes, name: str | None, tmp_path: Path
) -> None:
    form = b"--x\r\ncontent-disposition: form-data; " + disposition + b"\r\n\r\na\r\n"
    form += b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nassistants\r\n--x--\r\n'
    async with running(folder=tmp_path) as server:
        kind = {"content-type": "multipart/form-data; boundary=x"}
        answer = (await server.public.post("/v1/files", content=form, headers=kind)).json()
    if name is None:
        assert (answer["error"]["param"], "file" in answer["error"]["message"]) == ("file", True)
    else:
        assert answer["filename"] == name


@given(st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=40))
async def test_no_header_of_a_part_is_a_fault_of_ours(value: str) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"--x\r\ncontent-disposition: form-data; filename" + value.encode("latin-1") + b"\r\n\r\na\r\n--x--\r\n"

    async def take(_: bytes) -> None:
        pass

    with suppress(ServeError):  # anything else fails
        await FormReader("multipart/form-data; boundary=x", take).read(pieces())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1e999", "null", "{}", '"' + "x" * 513 + '"'])
@pytest.mark.parametrize("several", [False, True])
async def test_a_value_that_no_filter_takes_is_told_what_is_allowed(value: str, several: bool) -> None:
    asked = f'{{"type": "{"in" if several else "eq"}", "key": "a", "value": {f"[1, {value}]" if several else value}}}'
    async with running() as server:
        headers = {"content-type": "application/json"}
        content = f'{{"query": "a", "filters": {asked}}}'
        refused = await server.public.post(f"{STORE}/search", content=content, headers=headers)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "filters.value[1]" if several else "filters.value")
    assert "a finite number, true or false, or a text of at most 512 characters" in error["message"]
    assert "valid" not in error["message"]
