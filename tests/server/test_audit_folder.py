"""What becomes of the chain where its folder goes, fills up or refuses, and comes back, while the server runs."""

import asyncio
import errno
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailhold_server.audit.files import chain_files
from tailhold_server.audit.journal import Journal, NotRecordedError
from tailhold_server.audit.record import Head
from tailhold_server.audit.verify import ONLY, records_of, verify

Act = Callable[[Path], None]


class Uncounted:
    def recorded(self, records: int, seconds: float) -> None: ...

    def not_recorded(self, records: int) -> None: ...


def nothing(folder: Path) -> None:
    """There is nothing to repair."""


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def remove_claim(folder: Path) -> None:
    shutil.rmtree(folder.parents[1])


def remove_file(folder: Path) -> None:
    chain_files(folder)[-1].unlink()


def remove_lock(folder: Path) -> None:
    (folder / ".lock").unlink()


def move_away(folder: Path) -> None:
    folder.rename(folder.with_name("aside"))


def move_back(folder: Path) -> None:
    """Its files, into the folder that was made meanwhile."""
    for file in chain_files(folder.with_name("aside")):
        file.rename(folder / file.name)
    shutil.rmtree(folder.with_name("aside"))


def put_a_file_there(folder: Path) -> None:
    move_away(folder)
    folder.write_text("no folder")


def take_the_file_away(folder: Path) -> None:
    folder.unlink()
    folder.with_name("aside").rename(folder)


def put_a_file_above(folder: Path) -> None:
    folder.parent.rename(folder.parent.with_name("aside"))
    folder.parent.write_text("no folder")


def take_the_file_above_away(folder: Path) -> None:
    folder.parent.unlink()
    folder.parent.with_name("aside").rename(folder.parent)


async def one_fails(made: Journal, number: int) -> None:
    with pytest.raises(NotRecordedError):
        await made.put(lambda: {"kind": "note", "number": number})


async def through(folder: Path, break_: Act, repair: Act, *, fails: bool) -> tuple[Head, Head]:
    """Three records, the damage, records that fail if they do, the repair, a last record. Heads before and after."""
    made = Journal(folder, {"pipeline": "docs", "pod": folder.name}, lambda: 365, Uncounted())
    made.open()
    made.start()
    for number in range(3):
        await made.put(lambda number=number: {"kind": "note", "number": number})  # type: ignore[misc]
    before = made.head
    break_(folder)
    for _ in range(3 if fails else 0):
        await one_fails(made, 7)
    if not fails:
        await made.put(lambda: {"kind": "note", "number": 8})
    repair(folder)
    await made.put(lambda: {"kind": "note", "number": 9})
    await asyncio.to_thread(made.close)
    return before, made.head


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


GONE: dict[str, tuple[Act, Act, str]] = {
    "the folder": (remove_folder, nothing, "begins with record 5"),
    "the folder, moved": (move_away, lambda folder: shutil.rmtree(folder.with_name("aside")), "begins with record 5"),
    "the whole claim": (remove_claim, nothing, "begins with record 5"),
    "the file": (remove_file, nothing, "begins with record 5"),
}


@pytest.mark.parametrize(("break_", "repair", "found"), GONE.values(), ids=GONE)
async def test_records_that_are_taken_away_are_missed_for_ever_and_the_chain_goes_on(
    break_: Act, repair: Act, found: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "claim" / "docs" / "pod-a"
    before, after = await through(folder, break_, repair, fails=False)
    (told,) = said(caplog)
    assert f"audit records 1 to {before.sequence} are gone from {folder}" in told
    report = verify(folder, {ONLY: after})
    (finding,) = report.findings
    assert finding.words.startswith(found)
    assert f"that 1 to {before.sequence} had been removed while it ran" in finding.words
    assert verify(folder, {ONLY: before}).findings, "a head that was seen before helps nobody to hide it"
    assert [each["number"] for each in records_of(folder) if each["kind"] == "note"] == [8, 9]


async def test_a_middle_that_is_taken_away_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "pod-a"
    await through(folder, nothing, nothing, fails=False)
    start = verify(folder).chains[0].head.sequence
    before, after = await through(folder, remove_file, nothing, fails=False)
    (finding,) = verify(folder, {ONLY: after}).findings
    assert f"{before.sequence - start} are missing; its process saw at" in finding.words


async def test_files_that_are_put_back_make_the_chain_whole(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "pod-a"
    before, after = await through(folder, move_away, move_back, fails=False)
    report = verify(folder, {ONLY: after})
    assert (report.findings, report.torn) == ((), ())
    assert verify(folder, {ONLY: before}).findings == ()


async def test_a_lock_that_is_taken_away_is_taken_anew_with_the_next_file(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "pod-a"
    await through(folder, remove_lock, lambda folder: chain_files(folder)[0].rename(folder / "aside"), fails=False)
    assert (folder / ".lock").exists()
    (folder / "aside").rename(folder / "000000000001-20260101T000000000000Z.jsonl")
    assert verify(folder).findings == ()


BLOCKED: dict[str, tuple[Act, Act]] = {
    "a file in its place": (put_a_file_there, take_the_file_away),
    "a file above it": (put_a_file_above, take_the_file_above_away),
}


@pytest.mark.parametrize(("break_", "repair"), BLOCKED.values(), ids=BLOCKED)
async def test_a_file_in_the_folders_place_refuses_until_it_is_gone(
    break_: Act, repair: Act, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "claim" / "docs" / "pod-a"
    before, after = await through(folder, break_, repair, fails=True)
    (told,) = said(caplog)
    assert told.startswith(f"audit records cannot be written to {folder}: ")
    assert "a file stands where a folder belongs: move it away" in told
    assert [each.getMessage() for each in caplog.records][-1] == f"audit records are written to {folder} again"
    for head in (before, after):
        assert verify(folder, {ONLY: head}).findings == ()
    assert len(chain_files(folder)) == 2, "it goes on in a new file"


class Refusing:
    """A file system that refuses what its calls' names say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, calls: tuple[str, ...]) -> None:
        self.refuses = False
        for name in calls:
            monkeypatch.setattr(f"tailhold_server.audit.segment.os.{name}", self._wrapped(getattr(os, name), number))

    def _wrapped(self, call: Callable[..., Any], number: int) -> Callable[..., Any]:
        def wrapped(first: Any, *given: Any, **named: Any) -> Any:
            if self.refuses and (isinstance(first, int) or str(first).endswith(".jsonl")):
                if call.__name__ == "write":
                    call(first, given[0][: len(given[0]) // 2])
                raise OSError(number, os.strerror(number))
            return call(first, *given, **named)

        return wrapped


REFUSED = {
    "full": (errno.ENOSPC, ("write",), "make room on the claim"),
    "full, and what was written stays": (errno.ENOSPC, ("write", "ftruncate"), "make room on the claim"),
    "read-only in the middle of a write": (errno.EROFS, ("write", "ftruncate", "open"), "mount the volume writable"),
    "the right to write is taken": (errno.EACCES, ("write", "ftruncate", "open"), "the right to write there"),
    "a disk with errors": (errno.EIO, ("fdatasync", "ftruncate", "open", "unlink"), "look at the volume"),
}


@pytest.mark.parametrize(("number", "calls", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_disk_that_refuses_is_said_once_and_the_chain_goes_on_after_it(
    number: int,
    calls: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Half a line, or whole ones that nobody was told of, may stay: the next file vouches for them."""
    folder, disk = tmp_path / "docs" / "pod-a", Refusing(monkeypatch, number, calls)

    def break_(folder: Path) -> None:
        disk.refuses = True

    def repair(folder: Path) -> None:
        disk.refuses = False

    before, after = await through(folder, break_, repair, fails=True)
    (told,) = said(caplog)
    assert str(folder) in told
    assert words in told
    report = verify(folder, {ONLY: after})
    assert (report.findings, report.torn) == ((), ())
    assert verify(folder, {ONLY: before}).findings == ()


async def test_a_failure_that_nobody_waits_for_any_more_is_no_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc

    told = list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    disk = Refusing(monkeypatch, errno.ENOSPC, ("write",))
    made = Journal(tmp_path / "pod-a", {}, lambda: 365, Uncounted())
    made.open()
    made.start()
    disk.refuses = True
    made.put(lambda: {"kind": "note"})
    await one_fails(made, 1)
    disk.refuses = False
    await asyncio.to_thread(made.close)
    gc.collect()
    assert told == []


REAL = """
import asyncio, errno, json, subprocess, sys
from pathlib import Path
from tailhold_server.audit.journal import Journal, NotRecordedError
from tailhold_server.audit.record import Head
from tailhold_server.audit.verify import ONLY, verify

class Uncounted:
    def recorded(self, records, seconds): ...
    def not_recorded(self, records): ...

def mount(*words):
    subprocess.run(["mount", "-t", "tmpfs", *words], check=True)

async def main(claim):
    mount("-o", "size=512k", "tmpfs", claim)
    folder = Path(claim) / "docs" / "pod-a"
    journal = Journal(folder, {"pipeline": "docs", "pod": "pod-a"}, lambda: 365, Uncounted())
    journal.open()
    journal.start()

    async def put():
        try:
            await journal.put(lambda: {"kind": "note", "text": "x" * 3000})
            return True
        except NotRecordedError as error:
            return str(error)

    def found():
        report = verify(folder, {ONLY: journal.head})
        return [each.words for each in (*report.findings, *report.torn)]

    (Path(claim) / "ballast").write_bytes(b"x" * 300_000)
    told, written = [], 0
    while (full := await put()) is True:
        written += 1
    told += [full, found()]
    (Path(claim) / "ballast").unlink()
    told += [await put(), found()]
    mount("-o", "ro", "tmpfs", claim)
    told += [await put(), await put()]
    subprocess.run(["umount", claim], check=True)
    told += [await put(), found(), written > 10]
    await asyncio.to_thread(journal.close)
    print(json.dumps([*told, found()]))

asyncio.run(main(sys.argv[1]))
"""


def test_a_real_disk_that_is_full_then_covered_by_one_that_is_read_only(tmp_path: Path) -> None:
    """Small file systems of a mount namespace of its own."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    done = subprocess.run([*unshare, sys.executable, "-c", REAL, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    full, after_full, again, after_again, covered, still, back, after_back, wrote_some, at_the_end = json.loads(
        done.stdout
    )
    assert "make room on the claim" in full
    assert "mount the volume writable" in covered
    assert still == covered
    assert (again, back, wrote_some) == (True, True, True)
    assert [after_full, after_again, after_back, at_the_end] == [[], [], [], []]
