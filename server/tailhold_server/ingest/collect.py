"""Documents to chunks: each text once, with every place at which it stands."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from tailhold_server.ingest.report import DocumentFailure, UnreadableError, Why, failure
from tailhold_server.ingest.sources import Found
from tailhold_server.ingest.split import Splitter
from tailhold_server.ingest.worker import Reader
from tailhold_server.ports import Document
from tailhold_server.snapshots.contents import Place
from tailhold_server.snapshots.tombstones import Tombstones

NOTHING_DELETED = Tombstones()


@dataclass
class Collected:
    """What the sources gave, in the order of reading."""

    documents: list[Document] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    """What is embedded for each text."""
    places: list[list[Place]] = field(default_factory=list)
    failures: list[DocumentFailure] = field(default_factory=list)
    deleted: int = 0
    """Documents that are left out because they were deleted."""


def collect(
    items: Iterable[Found | DocumentFailure],
    reader: Reader,
    splitter: Splitter,
    into: Collected,
    deletions: Tombstones = NOTHING_DELETED,
) -> Iterator[int]:
    """Read everything but what was deleted; yields the number of items read so far, for progress."""
    known = {text: index for index, text in enumerate(into.texts)}
    for done, item in enumerate(items, 1):
        if isinstance(item, DocumentFailure):
            into.failures.append(item)
        elif deletions.hides(stub := _stub(item)):
            into.deleted += 1
        else:
            _add(into, known, item, stub, reader, splitter)
        yield done


def _stub(found: Found) -> Document:
    digest = hashlib.sha256(found.data).hexdigest()
    return Document(found.source, found.path.replace("\0", ""), "", found.url, digest)


def _add(
    collected: Collected, known: dict[str, int], found: Found, stub: Document, reader: Reader, splitter: Splitter
) -> None:
    name = f"{found.source}/{found.path}"
    try:
        read = reader.read(found.path, found.data)
    except UnreadableError as error:
        collected.failures.append(failure(name, error.reason, error.detail))
        return
    document = len(collected.documents)
    collected.documents.append(stub._replace(title=read.title))
    for chunk in splitter.split(read.title, read.text, marked_up=read.marked_up):
        index = known.setdefault(chunk.text, len(collected.texts))
        if index == len(collected.texts):
            collected.texts.append(chunk.text)
            collected.passages.append(chunk.passage)
            collected.places.append([])
        collected.places[index].append(Place(document, chunk.start, chunk.end))


def without(collected: Collected, chunks: Collection[int]) -> tuple[Collected, list[int]]:
    """Take out the documents that hold these chunks: a document is in the index whole or not at all.

    Returns what is left and the old index of each chunk in it.
    """
    failed = {place.document for chunk in chunks for place in collected.places[chunk]}
    numbers = {old: new for new, old in enumerate(n for n in range(len(collected.documents)) if n not in failed)}
    left = Collected(
        documents=[collected.documents[old] for old in numbers],
        deleted=collected.deleted,
        failures=[
            *collected.failures,
            *(_not_finite(collected.documents[number]) for number in sorted(failed)),
        ],
    )
    kept = []
    for index, spots in enumerate(collected.places):
        places = [Place(numbers[spot.document], spot.start, spot.end) for spot in spots if spot.document in numbers]
        if places:
            kept.append(index)
            left.places.append(places)
            left.texts.append(collected.texts[index])
            left.passages.append(collected.passages[index])
    return left, kept


def empty_sources(collected: Collected, sources: Iterable[str]) -> list[DocumentFailure]:
    """Sources that gave neither a document nor a failure of their own."""
    said = {document.source for document in collected.documents}
    said |= {each.path.partition("/")[0] for each in collected.failures}
    return [failure(name, Why.EMPTY_SOURCE) for name in sources if name not in said]


def why_empty(collected: Collected, sources: Iterable[str]) -> str:
    """For each source, what stood in the way of its documents; and how many were deleted."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for each in collected.failures:
        reasons[each.path.partition("/")[0]].append(f"{each.path}: {each.reason}, {each.hint}")
    told = "; ".join(_why(name, reasons[name]) for name in sources)
    return told + (
        f"; {collected.deleted} documents are deleted (`tailhold index deleted`)" if collected.deleted else ""
    )


def _why(source: str, reasons: list[str]) -> str:
    shown = reasons[:3] or ["no text"]
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return f"source {source}: {', '.join(shown)}{more}"


def _not_finite(document: Document) -> DocumentFailure:
    return failure(f"{document.source}/{document.path}", Why.NOT_FINITE)


def passage_hash(passage: str) -> bytes:
    """What tells whether a passage was embedded before."""
    return hashlib.sha256(passage.encode()).digest()
