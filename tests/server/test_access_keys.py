"""Keys of a Secret: who is let in, what is said to others, and what becomes of keys that change."""

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag_server import Running, body, content_part, pod_part, running
from secret_folder import swap

from tailhold_api.access import ApiKeys, Auth
from tailhold_api.spec import Program
from tailhold_server.access import keys
from tailhold_server.access.access import Access, open_access
from tailhold_server.access.authentication import KEPT_SECONDS
from tailhold_server.access.caller import ANONYMOUS, Caller, caller_of
from tailhold_server.access.keys import Keys, parse_keys
from tailhold_server.access.watched import read_file
from tailhold_server.errors import Failure, ServeError, StartError
from tailhold_server.telemetry import Telemetry

ADA, BOB = "ada-0123456789abcdef", "bob-0123456789abcdef"
WITH_KEYS = Program(auth=Auth(api_keys=ApiKeys(secret_name="clients")))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets" / "clients"
    swap(folder, ada=f"{ADA}\n", bob="sha256:" + hashlib.sha256(BOB.encode()).hexdigest())
    return folder


def opened(secret: Path, telemetry: Telemetry | None = None, tenants: dict[str, str] | None = None) -> Access:
    return open_access(WITH_KEYS, secret.parent, telemetry or Telemetry(), lambda name: (tenants or {}).get(name, ""))


WRONG: dict[str, list[tuple[bytes, bytes]]] = {
    "none": [],
    "empty": [(b"authorization", b"")],
    "another scheme": [(b"authorization", b"Basic YWRhOmFkYQ==")],
    "no key": [(b"authorization", b"Bearer ")],
    "nobody's": [(b"authorization", b"Bearer ada-0123456789abcdeg")],
    "the beginning of one": [(b"authorization", f"Bearer {ADA[:-1]}".encode())],
    "one and more": [(b"authorization", f"Bearer {ADA}x".encode())],
    "two in one": [(b"authorization", f"Bearer {ADA} {BOB}".encode())],
    "the hash of one": [(b"authorization", b"Bearer sha256:" + hashlib.sha256(BOB.encode()).hexdigest().encode())],
    "no ASCII": [(b"authorization", "Bearer schlüssel-0123456789".encode("latin-1"))],
    "no UTF-8": [(b"authorization", b"Bearer \xff\xfe0123456789abcdef")],
    "huge": [(b"authorization", b"Bearer " + b"a" * 60_000)],
    "two headers": [(b"authorization", f"Bearer {ADA}".encode())] * 2,
    "in the address": [(b"x-api-key", ADA.encode())],
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
async def test_who_has_no_key_is_told_so_and_nothing_more(headers: list[tuple[bytes, bytes]], secret: Path) -> None:
    async with running(authenticator=opened(secret).authenticator) as server:
        answers = [
            await server.public.request(method, path, headers=headers)
            for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/nope"))
        ]
        denied = server.service.telemetry.text()
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (401, "invalid_api_key", "invalid_request_error")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert not any(key in answer.text for key in (ADA, BOB, "0123456789"))
    assert len(server.engine.prompts) == 1, "the warm-up's alone"
    assert 'tailhold_denied_total{reason="no_key"} 3.0' in denied


@pytest.mark.parametrize("header", [f"Bearer {ADA}", f"bearer {BOB}", f"BEARER  {ADA} "])
async def test_who_has_a_key_is_let_in(header: str, secret: Path) -> None:
    async with running(authenticator=opened(secret).authenticator) as server:
        headers = {"authorization": header}
        assert (await server.public.get("/v1/models", headers=headers)).status_code == 200
        asked = await server.public.post("/v1/chat/completions", json=body(), headers=headers)
        assert asked.status_code == 200
        assert (await server.internal.get("/readyz")).status_code == 200
        assert (await server.internal.get("/metrics")).status_code == 200


async def test_without_keys_everybody_is_the_same_client() -> None:
    async with running() as server:
        assert (await server.ask()).status_code == 200
    assert caller_of({}) == ANONYMOUS == Caller("anonymous", "")


async def test_a_caller_is_known_to_what_comes_after(secret: Path) -> None:
    access = opened(secret, tenants={"ada": "risk"})
    assert access.authenticator is not None
    assert await access.authenticator.caller(ADA) == Caller("ada", "risk")
    assert await access.authenticator.caller(BOB) == Caller("bob", "")


async def lets_in(access: Access, key: str) -> bool:
    assert access.authenticator is not None
    try:
        await access.authenticator.caller(key)
    except ServeError:
        return False
    return True


async def test_keys_are_rotated_without_a_restart(secret: Path) -> None:
    access = opened(secret)
    swap(secret, ada="ada-fedcba9876543210", carol="carol-0123456789abcdef")
    assert await lets_in(access, ADA), "until it is looked at"
    await access.refresh()
    keys = (ADA, BOB, "ada-fedcba9876543210", "carol-0123456789abcdef")
    assert [await lets_in(access, key) for key in keys] == [False, False, True, True]


CAROL, NEW = "carol-0123456789abcdef", "ada-fedcba9876543210"
# What a change of {ada, bob} leaves: who is let in, who is shut out, and words of the log.
CHANGES: dict[str, tuple[dict[str, bytes | str], dict[str, str], set[str], str]] = {
    "too short": ({"ada": "short", "bob": BOB}, {BOB: "bob"}, {"ada"}, "has to have at least 16 characters"),
    "empty": ({"ada": "", "bob": BOB}, {BOB: "bob"}, {"ada"}, "client `ada`"),
    "a blank within": ({"ada": "0123456789 abcdef", "bob": BOB}, {BOB: "bob"}, {"ada"}, "client `ada`"),
    "half a hash": ({"ada": "sha256:0123", "bob": BOB}, {BOB: "bob"}, {"ada"}, "64 hex digits"),
    "no ASCII": ({"ada": "schlüssel-0123456789", "bob": BOB}, {BOB: "bob"}, {"ada"}, "not ASCII"),
    "bytes": ({"ada": b"\xff\xfe\x00" * 10, "bob": BOB}, {BOB: "bob"}, {"ada"}, "not ASCII"),
    "huge": ({"ada": b"a" * (3 << 20), "bob": BOB}, {BOB: "bob"}, {"ada"}, "is larger than"),
    "a broken one beside one that is revoked": ({"ada": "short"}, {}, {"ada"}, "client `ada`"),
    "a broken one beside a new one": (
        {"ada": ADA, "bob": "x", "carol": CAROL},
        {ADA: "ada", CAROL: "carol"},
        {"bob"},
        "`bob`",
    ),
    "two broken ones": ({"ada": "x", "bob": "y", "carol": CAROL}, {CAROL: "carol"}, {"ada", "bob"}, "`ada`, `bob`"),
    "one key for two": (
        {"ada": ADA, "bob": ADA, "carol": CAROL},
        {CAROL: "carol"},
        {"ada", "bob"},
        "`ada` and `bob` have the same key",
    ),
    "a key and its hash": (
        {"ada": ADA, "bob": "sha256:" + hashlib.sha256(ADA.encode()).hexdigest()},
        {},
        {"ada", "bob"},
        "same key",
    ),
    "one is revoked": ({"bob": BOB}, {BOB: "bob"}, set(), ""),
    "a key is renewed": ({"ada": NEW, "bob": BOB}, {NEW: "ada", BOB: "bob"}, set(), ""),
    "all are revoked": ({}, {}, set(), "holds no key, so everybody is turned away"),
}


def emptied(folder: Path) -> None:
    """As kubelet leaves a Secret without data."""
    for path in folder.iterdir():
        if not path.name.startswith(".."):
            path.unlink()


@pytest.mark.parametrize(("files", "lets", "out", "words"), CHANGES.values(), ids=CHANGES)
async def test_each_entry_holds_for_its_own_client_at_once(
    files: dict[str, bytes | str],
    lets: dict[str, str],
    out: set[str],
    words: str,
    secret: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    telemetry = Telemetry()
    access = opened(secret, telemetry)
    assert 'tailhold_access_current{what="api_keys"} 1.0' in telemetry.text()
    swap(secret, **files)
    if not files:
        emptied(secret)
    for _ in range(3):
        await access.refresh()
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == bool(words), "once, not at each look"
    assert all(words in each and not any(key in each for key in (ADA, BOB, CAROL)) for each in said)
    assert access.authenticator is not None
    assert {key for key in (ADA, BOB, CAROL, NEW) if await lets_in(access, key)} == lets.keys()
    assert {key: (await access.authenticator.caller(key)).client for key in lets} == lets
    assert f'tailhold_access_current{{what="api_keys"}} {0.0 if words else 1.0}' in telemetry.text()
    assert shut_out(telemetry) == out
    told = access.told()["apiKeys"]
    assert (set(told["shutOut"]), told["shutOutCount"], told["current"]) == (out, len(out), not out)
    assert not any(key in str(told) for key in (ADA, BOB, CAROL, NEW))
    swap(secret, ada=NEW)
    await access.refresh()
    assert [await lets_in(access, key) for key in (NEW, ADA, BOB)] == [True, False, False]
    assert 'tailhold_access_current{what="api_keys"} 1.0' in telemetry.text()
    assert shut_out(telemetry) == set()
    assert access.told()["apiKeys"]["shutOut"] == []


@contextmanager
def failing(name: str) -> Iterator[None]:
    """The volume does not give this file."""

    def fails(path: Path) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_file(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "read_file", fails)
        yield


@pytest.mark.parametrize("at_start", [True, False])
async def test_an_entry_that_could_not_be_read_once_is_read_again_though_it_did_not_change(
    at_start: bool, secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry = Telemetry()
    with failing("bob") if at_start else nullcontext():
        access = opened(secret, telemetry)
    with failing("bob"):
        swap(secret, ada=ADA, bob=BOB)
        for _ in range(3):
            await access.refresh()
            assert [await lets_in(access, key) for key in (ADA, BOB)] == [True, False]
    assert shut_out(telemetry) == {"bob"}
    assert len([each for each in caplog.records if "`bob`" in each.getMessage()]) == 1, "once, not at each look"
    await access.refresh()
    assert await lets_in(access, BOB)
    assert shut_out(telemetry) == set()


async def test_a_key_that_changes_in_place_within_its_size_and_time_is_taken(tmp_path: Path) -> None:
    """As rsync and copies that keep times leave it."""
    folder = tmp_path / "clients"
    folder.mkdir()
    (folder / "ada").write_text(ADA)
    access, before = opened(folder), (folder / "ada").stat()
    (folder / "ada").write_text(NEW)
    os.utime(folder / "ada", ns=(before.st_atime_ns, before.st_mtime_ns))
    await access.refresh()
    assert [await lets_in(access, key) for key in (ADA, NEW)] == [False, True]


def move(folder: Path, to: Path) -> None:
    folder.rename(to)


def shut_out(telemetry: Telemetry) -> set[str]:
    return set(re.findall(r'tailhold_client_shut_out{client="(\w+)"} 1.0', telemetry.text()))


async def test_a_folder_that_cannot_be_read_keeps_its_keys_for_a_while_and_no_longer(
    secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A key that is revoked meanwhile must not open for ever; a hiccup of the node must lock nobody out."""
    now, telemetry = [1000.0], Telemetry()
    access = open_access(WITH_KEYS, secret.parent, telemetry, lambda _: "", clock=lambda: now[0])
    await access.refresh()
    move(secret, secret.with_name("aside"))
    for _ in range(30):
        now[0] += KEPT_SECONDS / 30
        await access.refresh()
        assert await lets_in(access, ADA)
    assert 'tailhold_access_current{what="api_keys"} 0.0' in telemetry.text()
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
    now[0] += 1
    await access.refresh()
    assert access.authenticator is not None
    with pytest.raises(ServeError, match="cannot be read, so nobody can be let in") as refused:
        await access.authenticator.caller(ADA)
    assert (refused.value.failure, refused.value.retry_after_seconds) == (Failure.UNAVAILABLE, 30)
    move(secret.with_name("aside"), secret)
    await access.refresh()
    assert await lets_in(access, ADA)
    assert 'tailhold_access_current{what="api_keys"} 1.0' in telemetry.text()


async def test_a_look_that_hangs_ends_the_keys_as_well(secret: Path) -> None:
    now = [0.0]
    access = open_access(WITH_KEYS, secret.parent, Telemetry(), lambda _: "", clock=lambda: now[0])
    now[0] = KEPT_SECONDS + 1
    assert not await lets_in(access, ADA)


STARTS: dict[str, tuple[dict[str, bytes | str], str]] = {
    "none": ({}, "holds no key"),
    "a broken one": ({"ada": "short"}, "the key of client `ada` has to have at least 16 characters"),
    "one key for two": ({"ada": ADA, "bob": ADA}, "`ada` and `bob` have the same key"),
    "huge": ({"ada": b"a" * (3 << 20)}, "is larger than"),
}


@pytest.mark.parametrize(("files", "words"), STARTS.values(), ids=STARTS)
def test_a_start_that_could_let_nobody_in_says_why(files: dict[str, bytes | str], words: str, tmp_path: Path) -> None:
    swap(tmp_path / "clients", **files)
    with pytest.raises(StartError, match=words) as failed:
        opened(tmp_path / "clients")
    assert not failed.value.final, "a Secret that is put right helps"


async def test_a_start_with_a_broken_entry_lets_the_others_in(tmp_path: Path) -> None:
    swap(tmp_path / "clients", ada="short", bob=BOB)
    telemetry = Telemetry()
    access = opened(tmp_path / "clients", telemetry)
    assert [await lets_in(access, key) for key in ("short", BOB)] == [False, True]
    assert shut_out(telemetry) == {"ada"}


def test_a_start_without_the_secret_names_its_folder(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="clients cannot be read: No such file"):
        opened(tmp_path / "clients")


KEY = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=60).filter(
    lambda key: not key.startswith("sha256:")
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1), KEY, min_size=1), KEY)
def test_each_key_opens_for_its_client_alone(clients: dict[str, str], other: str) -> None:
    keys = Keys(parse_keys({client: key.encode() for client, key in clients.items()}, {}))
    shared = {client for client, key in clients.items() if list(clients.values()).count(key) > 1}
    assert keys.shut_out.keys() == shared
    opens = {client: keys.client(key) for client, key in clients.items()}
    assert opens == {client: None if client in shared else client for client in clients}
    assert other in clients.values() or keys.client(other) is None


async def test_openais_field_for_a_salt_is_refused_by_name() -> None:
    async with running() as server:
        refused = await server.ask(cache_salt="risk")
    assert refused.status_code == 400
    assert "cache_salt" in refused.json()["error"]["message"]


def described(server: Running) -> Any:
    return server.service.tuning()


async def test_what_is_in_force_tells_no_key(secret: Path) -> None:
    pod = pod_part().model_copy(update={"server": WITH_KEYS})
    async with running(pod=pod, content=content_part()) as server:
        assert "clients" in str(described(server))
        assert ADA not in str(described(server))
