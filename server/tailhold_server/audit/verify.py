"""Proves that the files of audit records are as they were written, or names where they are not."""

import contextlib
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tailhold_server.audit.absent import unexplained
from tailhold_server.audit.files import SUFFIX, chain_files, left_over, lines_of
from tailhold_server.audit.forms import misformed
from tailhold_server.audit.record import START, VERSION, Head, MalformedError, Record, head_of, read

ONLY = ""
"""Stands for the pod of the only chain."""


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was written."""

    file: Path
    line: int
    """From 1; 0 where it is no line that is wrong."""
    words: str


@dataclass
class Chain:
    """What a pod's folder holds."""

    folder: Path
    files: int = 0
    records: int = 0
    first: Record | None = None
    head: Head = START
    stopped: bool = False
    """Whether its last record says that nothing follows."""
    interrupted: dict[str, int] = field(default_factory=dict)
    """Answers that began and whose end is not recorded, with the record of their beginning."""
    torn: Finding | None = None
    """A last line that is not whole, or a last file without any: a process ended while it wrote, or somebody cut it."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def pod(self) -> str:
        """Whose it is."""
        return self.folder.resolve().name


@dataclass(frozen=True)
class Report:
    """All chains of a folder."""

    chains: tuple[Chain, ...]
    findings: tuple[Finding, ...]

    @property
    def torn(self) -> tuple[Finding, ...]:
        """Last lines that are not whole and that no later file vouches for."""
        return tuple(chain.torn for chain in self.chains if chain.torn)


def verify(
    root: Path,
    heads: Mapping[str, Head] | None = None,
    kept: Mapping[str, datetime] | None = None,
    now: datetime | None = None,
) -> Report:
    """Read all chains below `root`. `heads` were seen elsewhere, by pod, `ONLY` for the pod of the only chain.

    Without them a chain that was cut at its end cannot be told from one that was written no further. `kept` says by pod
    until when retention lets no head's record go, where that is known.
    """
    folders = sorted({file.parent for file in root.rglob(f"*{SUFFIX}")})
    wanted = dict(heads or {})
    if len(folders) == 1 and ONLY in wanted:
        wanted[folders[0].resolve().name] = wanted.pop(ONLY)
    readers = [_Reader(folder, wanted.get(folder.resolve().name)) for folder in folders]
    removed = [each for reader in readers for each in reader.read()]
    for reader in readers:
        _check_beginning(reader.chain, removed)
        deleted = {each["file"] for each in removed if each["pod"] == reader.chain.pod}
        reader.chain.findings += [each for each in reader.left_gone if each.file.name not in deleted]
    found = [finding for reader in readers for finding in reader.chain.findings]
    absent = (reader.chain for reader in readers if not reader.has_head)
    gone = {pod: root for pod in wanted if pod not in {reader.chain.pod for reader in readers}}
    places = {chain.pod: chain.folder for chain in absent} | gone
    missing = _missing(places, wanted, lambda pod, head: unexplained(pod, head, removed, kept or {}, now or _now()))
    return Report(tuple(reader.chain for reader in readers), (*found, *missing))


def records_of(root: Path) -> Iterator[Record]:
    """Each record below `root` that is as it was written, chain by chain; the others are passed over."""
    for folder in sorted({file.parent for file in root.rglob(f"*{SUFFIX}")}):
        for file in chain_files(folder):
            with contextlib.suppress(OSError):
                for line in lines_of(file):
                    with contextlib.suppress(MalformedError):
                        yield read(line.removesuffix(b"\n"))


@dataclass
class _Rest:
    """What follows the last record of a file."""

    bad: list[Finding]
    data: bytes = b""


class _Reader:
    """Goes through one chain."""

    def __init__(self, folder: Path, head: Head | None) -> None:
        self.chain = Chain(folder)
        self._head = head
        self.has_head = head is None
        """Whether the record that was seen elsewhere is there, or is known to be cut off or another one."""
        self.left_gone: list[Finding] = []
        """Unfinished lines that are not there: their file may have been deleted, which a later record says."""
        self._removed: list[Record] = []
        self._rests: dict[str, _Rest] = {}

    def read(self) -> list[Record]:
        """All files. Returns the records of deletions."""
        last = ""
        for file in chain_files(self.chain.folder):
            try:
                self._file(file)
            except FileNotFoundError:  # its server took it away, and what it may have held is missed by its numbers
                continue
            except OSError as error:
                self.chain.findings.append(Finding(file, 0, _unread(file, error)))
            self.chain.files, last = self.chain.files + 1, file.name
        for name, rest in self._rests.items():
            self._unvouched(rest, is_last=name == last)
        self._check_head()
        return self._removed

    def _file(self, file: Path) -> None:
        rest, number = _Rest([]), 0
        for number, line in enumerate(lines_of(file), 1):
            try:
                record = _whole(line)
            except MalformedError as error:
                rest.bad.append(Finding(file, number, f"the line {error}"))
                rest.data += line
                continue
            self.chain.findings += rest.bad
            self._record(file, number, record, len(rest.bad))
            rest = _Rest([])
        if not number:
            rest.bad.append(Finding(file, 0, "it is empty: no record is left in it"))
        if rest.bad:
            self._rests[file.name] = rest

    def _record(self, file: Path, number: int, record: Record, bad: int) -> None:
        chain = self.chain
        if words := self._misplaced(record, bad) or self._out_of_file(file, number, record):
            chain.findings.append(Finding(file, number, words))
        chain.first = chain.first or record
        chain.head, chain.records = head_of(record), chain.records + 1
        self._compare(record)
        if words := misformed(record):
            chain.findings.append(Finding(file, number, words))
            return
        self._remember(record)
        if words := self._elsewhere(record):
            chain.findings.append(Finding(file, number, words))

    def _misplaced(self, record: Record, bad: int) -> str:
        """What is wrong with a record's place; empty for nothing. The first one is looked at when all are known."""
        if record.get("v") != VERSION:
            return f"the record is of format {record.get('v')}, this program reads {VERSION}"
        found, expected = record["seq"], self.chain.head.sequence + 1 + bad
        if self.chain.first is None:
            return ""
        if found > expected:
            return f"record {found} stands where {expected} belongs: {found - expected} are missing{_seen_gone(record)}"
        if found < expected:
            return f"record {found} stands where {expected} belongs: it was repeated or moved"
        if not bad and record["prev"] != self.chain.head.hash:
            return f"record {found} was written after another record {found - 1} than the one that stands before it"
        return ""

    def _out_of_file(self, file: Path, number: int, record: Record) -> str:
        """What is wrong with a record in this file: each begins with one that names it, and ends with what says so."""
        if number == 1 and not file.name.startswith(f"{record['seq']:012}-"):
            return f"the file's name is not of one that begins with record {record['seq']}"
        if (number == 1) != (record.get("kind") == "opened"):
            return f"record {record['seq']} is of the kind {record.get('kind')}: a file begins with `opened`, once"
        if self.chain.stopped and number > 1:
            return f"record {record['seq']} follows one that says that nothing follows"
        return ""

    def _elsewhere(self, record: Record) -> str:
        """What a file that was moved or copied to another pod's folder says of itself."""
        if record.get("kind") != "opened":
            return ""
        here = f"{self.chain.folder.resolve().parent.name}/{self.chain.pod}"
        theirs = f"{record['pipeline']}/{record['pod']}"
        if here == theirs:
            return ""
        return f"record {record['seq']} was written to a folder {theirs}, and lies in {here}: it was moved or copied"

    def _remember(self, record: Record) -> None:
        kind = record.get("kind")
        self.chain.stopped = kind == "stopped"
        if kind == "opened":
            self._vouch(record)
        elif kind == "begun":
            self.chain.interrupted[record["request"]] = record["seq"]
        elif kind == "ended":
            self.chain.interrupted.pop(record["request"], None)
        elif kind == "removed":
            self._removed.append(record)

    def _vouch(self, opened: Record) -> None:
        """A process found an unfinished line when it came, and says which bytes they were."""
        for left in opened["left"]:
            rest = self._rests.get(left["file"])
            if rest is None:
                words = f"the unfinished line that record {opened['seq']} found here is gone"
                self.left_gone.append(Finding(self.chain.folder / left["file"], 0, words))
            elif left_over(left["file"], rest.data) == left:
                del self._rests[left["file"]]

    def _unvouched(self, rest: _Rest, *, is_last: bool) -> None:
        if is_last and len(rest.bad) == 1 and not rest.data.endswith(b"\n"):
            self.chain.torn = rest.bad[0]
        else:
            self.chain.findings += rest.bad

    def _compare(self, record: Record) -> None:
        chain, head = self.chain, self._head
        if head is None or record["seq"] != head.sequence:
            return
        self.has_head = True
        if record["hash"] != head.hash:
            words = f"record {head.sequence} is not the one that was seen before: the chain was written anew"
            chain.findings.append(Finding(chain.folder, 0, words))

    def _check_head(self) -> None:
        chain, head = self.chain, self._head
        if head is None or chain.head.sequence >= head.sequence:
            return
        self.has_head = True
        words = f"ends with record {chain.head.sequence}, but record {head.sequence} was there: its end is cut off"
        chain.findings.append(Finding(chain_files(chain.folder)[-1], 0, words))


def _seen_gone(record: Record) -> str:
    """What the process that wrote it saw, where it came to a folder without the records that it had written itself."""
    gone = record.get("gone")
    if not isinstance(gone, dict):
        return ""
    said = f"{gone.get('first')} to {gone.get('last')} had been removed while it ran"
    return f"; its process saw at {record.get('time')} that {said}"


def _unread(file: Path, error: OSError) -> str:
    with contextlib.suppress(OSError):
        if not stat.S_ISREG(file.lstat().st_mode):
            return "is no regular file: no server made it"
    return f"cannot be read: {error.strerror}"


def _whole(line: bytes) -> Record:
    if not line.endswith(b"\n"):
        raise MalformedError("is not whole")
    return read(line[:-1])


def _check_beginning(chain: Chain, removed: Sequence[Record]) -> None:
    """A chain begins with record 1, or where the record of a deletion says that the deleted part ended."""
    first = chain.first
    if first is None or (first["seq"], first["prev"]) == (1, START.hash):
        return
    before = (chain.pod, first["seq"] - 1, first["prev"])
    if before not in {(each["pod"], each["last"], each["lastHash"]) for each in removed}:
        words = f"begins with record {first['seq']}, and no record says that those before it were deleted"
        words += _seen_gone(first)
        chain.findings.insert(0, Finding(chain_files(chain.folder)[0], 1, words))


def _missing(
    places: Mapping[str, Path], heads: Mapping[str, Head], why: Callable[[str, Head], str]
) -> Iterator[Finding]:
    """Heads whose records are not there, unless retention explains it."""
    for pod, place in places.items():
        if words := why(pod, heads[pod]):
            yield Finding(place, 0, words)


def _now() -> datetime:
    return datetime.now(UTC)
