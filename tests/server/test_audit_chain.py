"""The chain of audit records: written, resumed, rotated, deleted, and every change of it found."""

import asyncio
import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chains import DAY, Clock, journal, run_verify, words, written
from hypothesis import given, settings
from hypothesis import strategies as st

from tailhold_server.audit.files import chain_files
from tailhold_server.audit.journal import NotRecordedError
from tailhold_server.audit.record import START, Head, MalformedError, read, sealed
from tailhold_server.audit.verify import ONLY, verify

json_bodies = st.dictionaries(
    st.sampled_from(["kind", "a", "b", "text"]),
    st.one_of(st.text(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.none()),
)


@given(st.lists(json_bodies, min_size=1, max_size=5))
def test_what_is_sealed_is_read_back_and_chained(bodies: list[dict[str, Any]]) -> None:
    head, lines = START, []
    for body in bodies:
        before = head
        line, head = sealed(head, body)
        record = read(line.removesuffix(b"\n"))
        assert {name: record[name] for name in body} == body
        assert (record["prev"], record["seq"], record["hash"]) == (before.hash, before.sequence + 1, head.hash)
        assert line.count(b"\n") == 1
        lines.append(line)


@given(json_bodies, st.data())
def test_a_line_with_one_byte_changed_is_no_record(body: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(sealed(START, body)[0].removesuffix(b"\n"))
    at = data.draw(st.integers(0, len(line) - 1))
    line[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedError):
        read(bytes(line))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Head]:
    """Three processes, files of a few records each."""
    folder = tmp_path_factory.mktemp("audit") / "docs" / "pod-a"
    for _ in range(3):
        head = written(folder, 7, max_bytes=1200)
    return folder, head


Mutation = Callable[[list[bytes], st.DataObject], list[bytes] | None]


def flip(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    """One byte of the file is another."""
    text = bytearray(b"".join(lines))
    text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    return [bytes(text)]


def delete(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    at = data.draw(st.integers(0, len(lines) - 1))
    return lines[:at] + lines[at + 1 :]


def swap(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    first, second = sorted(data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=2, max_size=2)))
    moved = list(lines)
    moved[first], moved[second] = moved[second], moved[first]
    return moved


def duplicate(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    at, to = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    return [*lines[:to], lines[at], *lines[to:]]


def truncate(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    text = b"".join(lines)
    return [text[: data.draw(st.integers(0, len(text) - 1))]]


def remove(lines: list[bytes], data: st.DataObject) -> list[bytes] | None:
    """The whole file."""
    return None


def insert(lines: list[bytes], data: st.DataObject) -> list[bytes]:
    """A record of somebody's own making, right in itself."""
    at = data.draw(st.integers(0, len(lines)))
    before = read(lines[at - 1][:-1]) if at else {"seq": 0, "hash": "0" * 64}
    forged, _ = sealed(Head(before["seq"], before["hash"]), {"kind": "note", "number": 99})
    return [*lines[:at], forged, *lines[at:]]


@settings(max_examples=400)
@given(st.sampled_from([flip, delete, swap, duplicate, truncate, remove, insert]), st.data())
def test_any_single_mutation_is_found(chain: tuple[Path, Head], mutate: Mutation, data: st.DataObject) -> None:
    """With the head seen elsewhere, also a tail that is cut off."""
    folder, head = chain
    file = data.draw(st.sampled_from(chain_files(folder)))
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    if mutate is swap and len(lines) < 2:
        return
    changed = mutate(lines, data)
    assert verify(folder, {ONLY: head}).findings == ()
    try:
        if changed is None:
            file.unlink()
        else:
            file.write_bytes(b"".join(changed))
        if changed is None or b"".join(changed) != before:
            report = verify(folder, {ONLY: head})
            assert report.findings
            assert all(finding.file.parent in (folder, folder.parent) for finding in report.findings)
    finally:
        file.write_bytes(before)


def test_a_chain_is_carried_on_over_processes_and_files(chain: tuple[Path, Head]) -> None:
    folder, head = chain
    report = verify(folder.parent, {"pod-a": head})
    (only,) = report.chains
    assert (report.findings, report.torn, only.stopped, only.head) == ((), (), True, head)
    assert only.files == 6
    assert only.records == head.sequence


def test_without_a_head_a_tail_that_is_cut_is_not_seen(chain: tuple[Path, Head], tmp_path: Path) -> None:
    """Why heads are kept elsewhere."""
    folder = shutil.copytree(chain[0], tmp_path / "docs" / "pod-a")
    chain_files(folder)[-1].unlink()
    assert verify(folder).findings == ()
    assert "its end is cut off" in words(verify(folder, {"pod-a": chain[1]}))[0]
    shutil.rmtree(folder)
    assert "no file of pod pod-a is left" in words(verify(tmp_path, {"pod-a": chain[1]}))[0]


def test_a_chain_that_is_written_anew_is_told_by_its_head(chain: tuple[Path, Head], tmp_path: Path) -> None:
    folder = tmp_path / "pod-a"
    written(folder, 60)
    assert verify(folder).findings == ()
    assert "written anew" in words(verify(folder, {"pod-a": chain[1]}))[0]


@pytest.mark.parametrize("kept", [1, 40, 200])
def test_a_torn_last_line_is_no_tampering_and_the_next_process_heals_it(tmp_path: Path, kept: int) -> None:
    folder = tmp_path / "pod-a"
    head = written(folder, 5)
    file = chain_files(folder)[-1]
    line, _ = sealed(head, {"kind": "note", "text": "x" * 300})
    with file.open("ab") as end:
        end.write(line[:kept])
    torn = verify(folder, {ONLY: head})
    assert (torn.findings, len(torn.torn)) == ((), 1)
    assert torn.torn[0].line == head.sequence + 1
    written(folder, 5)
    healed = verify(folder, {ONLY: head})
    assert (healed.findings, healed.torn, healed.chains[0].files) == ((), (), 2)
    file.write_bytes(file.read_bytes()[:-1])
    left = (
        "the line is not whole"
        if kept > 1
        else f"the unfinished line that record {head.sequence + 1} found here is gone"
    )
    assert words(verify(folder)) == [left], "what was vouched for is held to"


def test_a_process_that_dies_before_its_first_record_leaves_no_gap(tmp_path: Path) -> None:
    folder = tmp_path / "pod-a"
    head = written(folder, 3)
    (folder / f"{head.sequence + 1:012}-20260101T000000000000Z.jsonl").write_bytes(b'{"after"')
    written(folder, 3)
    report = verify(folder)
    assert (report.findings, report.torn) == ((), ())


def test_files_older_than_they_are_to_be_kept_are_deleted_and_the_gap_is_explained(tmp_path: Path) -> None:
    folder, gone, clock = tmp_path / "docs" / "pod-b", tmp_path / "docs" / "pod-gone", Clock()
    lost = written(gone, 4, clock=clock)
    for _ in range(6):
        written(folder, 3, clock=clock)
        clock.now += DAY
    for file in (*chain_files(folder), *chain_files(gone)):
        os.utime(file, (clock.now - 10 * DAY,) * 2)
    assert len(chain_files(folder)) == 6
    head = written(folder, 1, days=3, clock=clock)
    clock.now += DAY
    head = written(folder, 1, days=3, clock=clock)
    assert not gone.exists(), "a pod that is gone cleans up no more: another one does"
    heads, kept = {"pod-b": head, "pod-gone": lost}, datetime.fromtimestamp(Clock().now + 3 * DAY, UTC)
    now = datetime.fromtimestamp(clock.now, UTC)
    report = verify(tmp_path, heads, {"pod-gone": kept}, now)
    assert report.findings == ()
    for until in ({"pod-gone": kept + timedelta(days=9)}, {}):
        (missed,) = words(verify(tmp_path, heads, until, now))
        assert "the head's record 6 is not there: vouched for by a `removed` record alone" in missed
    assert report.chains[0].first is not None
    assert report.chains[0].first["seq"] > 1
    chain_files(folder)[0].unlink()
    assert "no record says that those before it were deleted" in words(verify(tmp_path))[0]


def test_a_pod_that_lives_keeps_its_files(tmp_path: Path) -> None:
    """Only whoever holds a folder's lock deletes in it. Locks are a process's: another one holds it here."""
    living, clock = tmp_path / "docs" / "pod-a", Clock()
    written(living, 2, clock=clock)
    program = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True);"
        " sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(living / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(OSError, match="another process writes its records there"):
            journal(living, clock=clock).open()
        os.utime(chain_files(living)[0], (clock.now - 100 * DAY,) * 2)
        clock.now += 10 * DAY
        written(tmp_path / "docs" / "pod-b", 1, days=1, clock=clock)
        assert living.exists()
    finally:
        holder.communicate("")
    written(tmp_path / "docs" / "pod-b", 1, days=1, clock=clock)
    assert not living.exists()


def test_each_day_has_its_file_though_nobody_asks(tmp_path: Path) -> None:
    clock = Clock()
    made = journal(tmp_path / "pod-a", clock=clock)
    made.open()
    for _ in range(3):
        clock.now += DAY
        made._tend()
    assert len(chain_files(tmp_path / "pod-a")) == 4
    assert verify(tmp_path).findings == ()


class Disk:
    """A disk whose writes or syncs fail as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails: str | None = None
        self._write, self._sync = os.write, os.fdatasync
        monkeypatch.setattr("tailhold_server.audit.segment.os.write", self.write)
        monkeypatch.setattr("tailhold_server.audit.segment.os.fdatasync", self.sync)

    def write(self, descriptor: int, data: Any) -> int:
        if self.fails == "write" and len(data) < 50:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(descriptor, data[: max(1, len(data) // 2)] if self.fails == "write" else data)

    def sync(self, descriptor: int) -> None:
        if self.fails == "sync":
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


@pytest.mark.parametrize("fails", ["write", "sync"])
def test_a_disk_that_fails_loses_nobodys_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who waits is told, half a line is taken out again, and the chain goes on once the disk does."""
    folder, disk = tmp_path / "pod-a", Disk(monkeypatch)

    async def run() -> None:
        made = journal(folder)
        made.open()
        made.start()
        await made.put(lambda: {"kind": "note", "number": 1})
        disk.fails = fails
        for _ in range(3):
            with pytest.raises(NotRecordedError):
                await made.put(lambda: {"kind": "note", "number": 2})
            made.lose()
        assert verify(folder).findings == ()
        disk.fails = None
        await made.put(lambda: {"kind": "note", "number": 3})
        await asyncio.to_thread(made.close)

    asyncio.run(run())
    report = verify(folder)
    assert (report.findings, report.torn) == ((), ())
    text = "".join(file.read_text() for file in chain_files(folder))
    assert '"number":2' not in text
    assert '"answers":3,' in text, "what went without a record is told"
    assert len([each for each in caplog.records if "cannot be written" in each.message]) == 1


def test_a_file_that_its_server_takes_away_meanwhile_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose disk fails makes a file and takes it away again, also between a listing and a look."""
    folder = tmp_path / "pod-a"

    async def run() -> None:
        made = journal(folder)
        made.open()
        made.start()
        await made.put(lambda: {"kind": "note", "number": 1})
        await asyncio.to_thread(made.close)

    asyncio.run(run())
    gone = folder / "000000000009-20270115T080000000000Z.jsonl"
    monkeypatch.setattr("tailhold_server.audit.verify.chain_files", lambda at: [*chain_files(at), gone])
    (chain,) = verify(folder).chains
    assert (chain.findings, chain.torn, chain.files) == ([], None, 1)


ENDLESS = """
import asyncio, sys
from pathlib import Path
from tailhold_server.audit.journal import Journal

class Uncounted:
    def recorded(self, records, seconds): ...
    def not_recorded(self, records): ...

async def main():
    about = {"pipeline": "docs", "pod": "pod-a"}
    journal = Journal(Path(sys.argv[1]), about, lambda: 365, Uncounted(), max_bytes=20_000)
    journal.open()
    journal.start()
    async def ask(number):
        while True:
            text = "x" * (number * 97)
            await journal.put(lambda: {"kind": "note", "text": text})
            print(journal.head.sequence, flush=True)
    await asyncio.gather(*map(ask, range(8)))

asyncio.run(main())
"""


def test_a_writer_that_is_killed_at_any_moment_has_lost_nothing_that_it_said_was_there(tmp_path: Path) -> None:
    """Round after round on one chain, each killed after a random number of records."""
    folder, chance, told = tmp_path / "docs" / "pod-a", random.Random(5), 0  # noqa: S311
    for _ in range(12):
        writer = subprocess.Popen([sys.executable, "-c", ENDLESS, str(folder)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 300)):
            writer.stdout.readline()
        writer.kill()
        rest, _ = writer.communicate()
        told = max([told, *map(int, rest.split()[:-1])])
        report = verify(tmp_path)
        assert report.findings == ()
        assert report.chains[0].head.sequence >= told
    assert told > 500


def test_a_record_that_cannot_be_made_takes_no_other_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        made = journal(tmp_path / "pod-a")
        made.open()
        first, bad, last = made.put(lambda: {"kind": "a"}), made.put(lambda: {"kind": 1 / 0}), made.put(dict)
        made.start()
        await first
        await last
        with pytest.raises(NotRecordedError):
            await bad
        await asyncio.to_thread(made.close)

    asyncio.run(run())
    assert verify(tmp_path).findings == ()


def test_the_command_says_where_and_by_its_exit_code(chain: tuple[Path, Head], tmp_path: Path) -> None:
    folder, head = shutil.copytree(chain[0], tmp_path / "docs" / "pod-a"), chain[1]
    seen = f"{head.sequence}:{head.hash}"
    assert run_verify(str(folder), "--head", seen)[0] == 0
    assert run_verify(str(tmp_path), "--head", f"pod-a={seen}")[0] == 0
    last = chain_files(folder)[-1]
    with last.open("ab") as end:
        end.write(b'{"after":')
    code, said = run_verify(str(folder), "--head", seen)
    assert code == 3
    assert "incomplete last line: the process ended while writing" in said
    file = chain_files(folder)[1]
    file.write_bytes(file.read_bytes().replace(b'"number":', b'"numbre":', 1))
    code, said = run_verify(str(folder), "--head", seen)
    assert code == 1
    assert f"{file.name}:2: the line does not match its hash" in said.replace("\n", "")


def wholly_replaced(folder: Path, head: Head, removed: datetime) -> None:
    """A chain that begins after the head that was seen, and vouches itself for all that was there."""
    for file in chain_files(folder):
        file.unlink()
    opened = {"kind": "opened", "pipeline": "docs", "pod": "pod-a", "left": [], "time": "x"}
    first, then = sealed(head, opened)
    vouched = {"pod": "pod-a", "file": "x", "first": 1, "last": head.sequence, "lastHash": head.hash}
    second, _ = sealed(then, {"kind": "removed", **vouched, "time": removed.isoformat()})
    (folder / f"{head.sequence + 1:012}-x.jsonl").write_bytes(first + second)


@pytest.mark.parametrize(
    ("days_kept", "days_removed", "is_explained"),
    [(None, 0, False), (365, 0, False), (365, 400, False), (30, 5, False), (30, 31, True), (30, 29.5, True)],
)
def test_a_chain_that_vouches_for_its_own_lost_head_is_believed_only_when_retention_has_passed(
    tmp_path: Path, days_kept: int | None, days_removed: float, is_explained: bool
) -> None:
    """A `removed` record is sealed as easily as any other."""
    folder, seen = tmp_path / "docs" / "pod-a", datetime(2026, 1, 1, tzinfo=UTC)
    head = written(folder, 5)
    wholly_replaced(folder, head, seen + timedelta(days=days_removed))
    kept = {} if days_kept is None else {"pod-a": seen + timedelta(days=days_kept)}
    found = words(verify(folder, {"pod-a": head}, kept, seen + timedelta(days=40)))
    assert (found == []) == is_explained
    assert is_explained or "vouched for by a `removed` record alone" in found[0]


def test_a_head_is_not_vouched_for_by_a_record_of_another(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "pod-a"
    head = written(folder, 5)
    wholly_replaced(folder, Head(head.sequence, "f" * 64), datetime(2026, 1, 1, tzinfo=UTC))
    assert "written anew" in words(verify(folder, {"pod-a": head}))[0]


def test_a_chain_in_another_pods_folder_is_named(chain: tuple[Path, Head], tmp_path: Path) -> None:
    """Moved or copied, to another pod or to the like-named one of another pipeline."""
    for there in ("docs/pod-b", "other/pod-a"):
        folder = shutil.copytree(chain[0], tmp_path / there)
        found = verify(folder).findings
        assert {each.file for each in found} == set(chain_files(folder))
        assert f"record 1 was written to a folder docs/pod-a, and lies in {there}" in found[0].words


def test_files_that_are_emptied_are_named(chain: tuple[Path, Head], tmp_path: Path) -> None:
    folder = shutil.copytree(chain[0], tmp_path / "docs" / "pod-a")
    files = chain_files(folder)
    for file in files:
        file.write_bytes(b"")
    report = verify(folder)
    assert [each.file for each in (*report.findings, *report.torn)] == files
    assert set(words(report)) == {"it is empty: no record is left in it"}
    assert run_verify(str(folder))[0] == 1


def test_an_empty_last_file_is_torn_and_the_next_process_vouches_for_it(tmp_path: Path) -> None:
    """One that died after it made the file and before it wrote."""
    folder = tmp_path / "docs" / "pod-a"
    head = written(folder, 3)
    empty = folder / f"{head.sequence + 1:012}-20260101T000000000000Z.jsonl"
    empty.touch()
    assert verify(folder).findings == ()
    code, said = run_verify(str(folder))
    assert code == 3
    assert "no record is left in it: the process ended before its first" in said.replace("\n", "")
    written(folder, 3)
    assert (verify(folder).findings, verify(folder).torn) == ((), ())
    empty.write_bytes(b"x")
    assert words(verify(folder)) == ["the line is not whole"]


def test_an_unfinished_line_may_go_with_its_file_when_retention_has_passed(tmp_path: Path) -> None:
    """The file that vouches for it is younger."""
    folder, clock = tmp_path / "docs" / "pod-a", Clock()
    written(folder, 3, clock=clock)
    (torn,) = chain_files(folder)
    with torn.open("ab") as end:
        end.write(b"{")
    clock.now += 3 * DAY
    written(folder, 3, clock=clock)
    os.utime(torn, (clock.now - 100 * DAY,) * 2)
    clock.now += DAY
    written(folder, 3, days=3, clock=clock)
    assert not torn.exists()
    assert verify(folder).findings == ()
