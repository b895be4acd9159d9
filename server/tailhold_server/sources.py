"""A passage as readers see it: its number, where it comes from, and the link of a citation."""

from dataclasses import dataclass
from typing import Any

from tailhold_server.citations import Citation
from tailhold_server.ports import Chunks, ChunkSource
from tailhold_server.prompt import Passage

SOURCE_PATH = "/v1/sources"
"""Under it the server shows its own copy of a chunk."""


@dataclass(frozen=True)
class Source:
    """A numbered passage of a prompt."""

    number: int
    title: str
    url: str
    """The document's own address, or the server's copy of the chunk."""
    document: str
    key: str
    score: float
    text: str


def place_of(chunks: Chunks, index: int, closed: frozenset[str]) -> ChunkSource:
    """Where a chunk comes from, for a reader to whom these corpus sources are closed: the first place beside them."""
    if not closed:
        return chunks.source(index)
    return next(each for each in chunks.sources(index) if each.source not in closed)


def source_of(
    chunks: Chunks, passage: Passage, number: int, public_url: str = "", closed: frozenset[str] = frozenset()
) -> Source:
    """What is said of a passage; our own copies are found below `public_url`."""
    said = place_of(chunks, passage.index, closed)
    url = said.url or f"{public_url}{SOURCE_PATH}/{said.key}"
    return Source(number, said.title, url, said.document, said.key, passage.score, chunks.text(passage.index))


def heading(number: int, source: ChunkSource) -> str:
    """What stands over a passage in the prompt."""
    return f"[{number}] {source.title}\n"


def source_body(source: Source) -> dict[str, Any]:
    """A source on the wire."""
    return {
        "number": source.number,
        "title": source.title,
        "url": source.url,
        "document": source.document,
        "key": source.key,
        "score": round(source.score, 6),
        "text": source.text,
    }


def annotation_body(citation: Citation, sources: tuple[Source, ...]) -> dict[str, Any]:
    """A citation in OpenAI's shape; indices are characters of the answer, the end is exclusive."""
    source = sources[citation.number - 1]
    cited = {
        "title": source.title,
        "url": source.url,
        "start_index": citation.start,
        "end_index": citation.end,
    }
    return {"type": "url_citation", "url_citation": cited}
