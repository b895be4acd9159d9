"""`tailhold audit show`: read the records of answers, searches and documents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailhold.target import CommandError
from tailhold_server.audit.record import Record
from tailhold_server.audit.verify import records_of

Shown = Mapping[str, Any]
"""`begun` and `ended` of an answer, `ended` None where it has none; or `search`; or `file`."""
HEADING = ("TIME", "REQUEST", "CLIENT/TENANT", "REVISION", "MODEL", "CITED", "OUTCOME", "TOKENS")
_WIDTHS = (20, 41, 16, 21, 12, 12, 14, 0)
_KEY_CHARACTERS = 12
"""Of a passage's key, so that a line stays one."""


@dataclass
class Looked:
    """What was gone through, shown or not."""

    records: int = 0
    first: str = ""
    last: str = ""

    def at(self, record: Record) -> None:
        """One more."""
        self.records += 1
        time = str(record.get("time", ""))
        self.first, self.last = min(self.first or time, time), max(self.last, time)


def show(folder: Path, request: str, client: str) -> Iterator[Shown]:
    """Answers, searches and documents that were asked for. Raises CommandError where there are none."""
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    looked, shown = Looked(), 0
    for shown, each in enumerate(_chosen(folder, request, client, looked), 1):  # noqa: B007
        yield each
    if not shown:
        raise CommandError(_nothing(folder, request, client, looked))


def _chosen(folder: Path, request: str, client: str, looked: Looked) -> Iterator[Shown]:
    begun: dict[str, Record] = {}
    for record in records_of(folder):
        looked.at(record)
        kind, named = record.get("kind"), str(record.get("request"))
        if kind == "ended":
            if first := begun.pop(named, None):
                yield {"begun": _own(first), "ended": _own(record)}
        elif kind in ("begun", "search", "file") and _is_wanted(record, request, client):
            if kind == "begun":
                begun[named] = record
            else:
                yield {kind: _own(record)}
    yield from ({"begun": _own(each), "ended": None} for each in begun.values())


def _is_wanted(record: Record, request: str, client: str) -> bool:
    return request in ("", record.get("request")) and client in ("", record.get("client"))


def _own(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("v", "kind", "prev")}


def _nothing(folder: Path, request: str, client: str, looked: Looked) -> str:
    if not looked.records:
        return f"no audit records below {folder}"
    asked = [f"{name} `{value}`" for name, value in (("the request", request), ("the client", client)) if value]
    what = f"nothing of {' and '.join(asked)}" if asked else "no answer, search or document"
    return f"{what} among the {looked.records} records below {folder}, from {looked.first} to {looked.last}"


def line(cells: tuple[str, ...]) -> str:
    """One row of the table."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def summary(shown: Shown) -> tuple[str, ...]:
    """A row under HEADING; `-` for what a record has not."""
    try:
        return _summary(shown)
    except (KeyError, TypeError, AttributeError, IndexError):  # sealed by somebody else than a server
        (record, *_) = shown.values()
        said = (str(record.get(name) or "-") for name in ("time", "request", "client"))
        return (*said, "-", "-", "-", "forged?", "-")


def _summary(shown: Shown) -> tuple[str, ...]:
    if "file" in shown:
        return _file(shown["file"])
    if "search" in shown:
        return _search(shown["search"])
    return _answer(shown["begun"], shown["ended"])


def _answer(begun: Record, ended: Record | None) -> tuple[str, ...]:
    if ended is None:
        return (*_who(begun), begun.get("model") or "-", "-", "no end", f"{begun['prompt']['tokens']}+?")
    chunks, usage = begun["chunks"], ended["usage"]
    cited = ",".join(chunks[n - 1]["key"][:_KEY_CHARACTERS] for n in ended["cited"] if n <= len(chunks))
    outcome = "/".join(each for each in (ended["outcome"], ended["finishReason"]) if each)
    tokens = f"{usage['promptTokens']}+{usage['completionTokens']}"
    return (*_who(begun), begun.get("model") or "-", cited or "-", outcome, tokens)


def _search(record: Record) -> tuple[str, ...]:
    found = ",".join(chunk["key"][:_KEY_CHARACTERS] for chunk in record["chunks"])
    return (*_who(record), "-", found or "-", "search", "-")


def _file(record: Record) -> tuple[str, ...]:
    files = ",".join(each["id"] for each in record["files"])
    return (*_who(record), "-", files or "-", f"file/{record['action']}", "-")


def _who(record: Record) -> tuple[str, ...]:
    client = "/".join(each for each in (record["client"], record["tenant"]) if each)
    time = record["time"][:19] + "Z"
    return time, record.get("request") or "-", client, record.get("revision") or "-"
