"""What somebody else than a server put into a folder of audit records is named, and stops neither reader nor server."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chains import Clock, journal, run_verify, words, written
from typer.testing import CliRunner

from tailhold.main import app
from tailhold_server.audit.files import LOCK, chain_files
from tailhold_server.audit.record import Head, canonical, sealed
from tailhold_server.audit.verify import verify

Put = Callable[[Path, Head], None]
ODD = "999999999999-x.jsonl"


def line(made: Callable[[Head], bytes]) -> Put:
    """As the last line of the newest file."""

    def put(folder: Path, head: Head) -> None:
        with chain_files(folder)[-1].open("ab") as end:
            end.write(made(head))

    return put


def forged(**body: Any) -> Put:
    return line(lambda head: sealed(head, body)[0])


def whole(record: dict[str, Any]) -> bytes:
    return canonical(record | {"hash": hashlib.sha256(canonical(record)).hexdigest()}) + b"\n"


def deep(_: Head) -> bytes:
    return b'{"a":' + b"[" * 300 + b"]" * 300 + b',"hash":"x","prev":"","seq":9}\n'


LINES: dict[str, tuple[Put, str]] = {
    "nested deep": (line(deep), "is not written as records are"),
    "nested deeper": (line(lambda _: b"[" * 100_000 + b"\n"), "is no JSON"),
    "without prev": (line(lambda head: whole({"kind": "x", "v": 1, "seq": head.sequence + 1})), "is no record"),
    "the last number there is": (line(lambda head: whole({"v": 1, "prev": "", "seq": 2**64 - 1})), "are missing"),
    "a negative number": (line(lambda head: whole({"v": 1, "prev": "", "seq": -5})), "is no record"),
    "begun without request": (forged(kind="begun", time="x"), "no server writes its `request` so"),
    "begun with a list": (forged(kind="begun", request=["x"]), "no server writes its `request` so"),
    "removed without pod": (forged(kind="removed", time="x"), "no server writes its `pod` so"),
    "opened without left": (forged(kind="opened", pod="a", pipeline="b"), "no server writes its `left` so"),
    "opened with odd left": (forged(kind="opened", pod="a", pipeline="b", left=["x"]), "its `left` so"),
    "odd gone": (line(lambda head: sealed(Head(head.sequence + 5, ""), {"gone": "x"})[0]), "are missing"),
}
PLACES: dict[str, Put] = {
    "a folder": lambda folder, _: (folder / ODD).mkdir(),
    "a dangling link": lambda folder, _: (folder / ODD).symlink_to("/nonexistent"),
    "a link to a file": lambda folder, _: (folder / ODD).symlink_to(chain_files(folder)[0]),
    "a pipe": lambda folder, _: os.mkfifo(folder / ODD),
}
ALL = {**{name: put for name, (put, _) in LINES.items()}, **PLACES}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "docs" / "pod-a"


@pytest.mark.parametrize(("put", "found"), LINES.values(), ids=LINES)
def test_an_odd_line_is_named(folder: Path, put: Put, found: str) -> None:
    head = written(folder, 3)
    put(folder, head)
    named = [each for each in verify(folder).findings if found in each.words]
    assert [(each.file, each.line) for each in named] == [(chain_files(folder)[-1], head.sequence + 1)]


@pytest.mark.parametrize("put", PLACES.values(), ids=PLACES)
def test_what_is_no_file_is_named(folder: Path, put: Put) -> None:
    put(folder, written(folder, 3))
    (finding,) = verify(folder).findings
    assert (finding.file, finding.words) == (folder / ODD, "is no regular file: no server made it")
    code, said = run_verify(str(folder))
    assert code == 1
    assert "BROKEN" in said


@pytest.mark.parametrize("put", ALL.values(), ids=ALL)
def test_the_next_process_goes_on_and_hides_nothing(folder: Path, put: Put) -> None:
    put(folder, written(folder, 3))
    before = [each.words for each in verify(folder).findings]
    head = written(folder, 4)
    report = verify(folder, {"pod-a": head})
    assert report.chains[0].stopped
    assert report.chains[0].records >= 5 + 6
    is_torn = any(each.startswith("the line is") for each in before)
    assert is_torn or set(before) <= set(words(report)), "a line that is no record is vouched for, all else stays named"


@pytest.mark.parametrize("put", ALL.values(), ids=ALL)
def test_old_files_go_whatever_stands_beside_them(folder: Path, put: Put) -> None:
    clock = Clock()
    put(folder, written(folder, 3, clock=clock))
    for file in chain_files(folder):
        if file.is_file() and not file.is_symlink():
            os.utime(file, (clock.now - 100 * 86400,) * 2)
            old = file
    clock.now += 86400 * 20
    made = journal(folder, days=3, clock=clock)
    made.open()
    made._sweep(clock.now)
    made._writer.end()
    assert not old.exists()


@pytest.mark.parametrize("put", ALL.values(), ids=ALL)
def test_records_are_shown_whatever_stands_beside_them(folder: Path, put: Put) -> None:
    put(folder, written(folder, 3))
    done = CliRunner().invoke(app, ["audit", "show", str(folder)])
    assert "no answer, search or document among the" in str(done.exception) or "forged?" in done.output


LOCKS: dict[str, Callable[[Path], object]] = {
    "none": lambda lock: None,
    "a folder": lambda lock: lock.mkdir(),
    "a folder with something in it": lambda lock: (lock.mkdir(), (lock / "x").write_text("x")),
    "a pipe": os.mkfifo,
    "a link": lambda lock: lock.symlink_to("/nonexistent"),
    "a link to itself": lambda lock: lock.symlink_to(lock.name),
}


@pytest.mark.parametrize("put", LOCKS.values(), ids=LOCKS)
def test_files_of_a_pod_that_is_gone_go_whatever_its_lock_is(
    put: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    gone, own = tmp_path / "docs" / "gone", tmp_path / "docs" / "own"
    written(gone, 3, clock=clock)
    (gone / LOCK).unlink()
    put(gone / LOCK)
    for file in chain_files(gone):
        os.utime(file, (clock.now - 100 * 86400,) * 2)
    clock.now += 86400 * 20
    made = journal(own, days=3, clock=clock)
    made.open()
    for _ in range(2):
        made._sweep(clock.now)
    made._writer.end()
    assert not chain_files(gone)
    assert not caplog.records


def test_a_folder_that_cannot_be_swept_is_named_and_holds_no_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, opens = Clock(), os.open
    for name in ("a", "b"):
        written(tmp_path / "docs" / name, 3, clock=clock)
        for file in chain_files(tmp_path / "docs" / name):
            os.utime(file, (clock.now - 100 * 86400,) * 2)

    def refusing(path: Any, *given: Any, **more: Any) -> int:
        if Path(path) == tmp_path / "docs" / "a" / LOCK:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opens(path, *given, **more)

    clock.now += 86400 * 20
    made = journal(tmp_path / "docs" / "own", days=3, clock=clock)
    made.open()
    monkeypatch.setattr(os, "open", refusing)
    made._sweep(clock.now)
    made._writer.end()
    assert [bool(chain_files(tmp_path / "docs" / name)) for name in ("a", "b")] == [True, False]
    assert [str(tmp_path / "docs" / "a") in each.getMessage() for each in caplog.records] == [True]
