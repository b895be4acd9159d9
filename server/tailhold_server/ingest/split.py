"""Cuts text into chunks by the embedder's own count of tokens."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from semantic_text_splitter import MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

from tailhold_api.conditions import Reason
from tailhold_api.serving import Embedder
from tailhold_api.sources import Chunking
from tailhold_server.errors import StartError

_SHORTEST = 16
_HEADING = re.compile(r"#{1,6} +(.+?) *")
_CRUMB_RATIO = 8
"""A piece under an eighth of the cap, such as a heading alone, is joined to the next: it would be found and
answer nothing."""


class Chunk(NamedTuple):
    """A piece of a document: `text` is its characters from `start` to `end`."""

    start: int
    end: int
    text: str
    passage: str
    """What is embedded: the document's title and the section's heading before the text, where they fit."""


class Splitter:
    """Cuts at headings, paragraphs and sentences of any script, never above the cap; drops blanks alone."""

    def __init__(self, tokenizer: Tokenizer, embedder: Embedder, chunking: Chunking) -> None:
        """`tokenizer` is the embedder's, without truncation."""
        self._tokenizer = tokenizer
        self._unknown = _unknown_id(tokenizer)
        self._prefix = embedder.passage_prefix
        self._room = embedder.max_tokens - tokenizer.num_special_tokens_to_add(False) - self.size(self._prefix)
        capacity = min(chunking.max_tokens, self._room)
        if capacity < _SHORTEST:
            raise StartError(
                Reason.INVALID_SPEC,
                f"`embedder.maxTokens` leaves {capacity} tokens for text: raise it",
            )
        self._capacity = capacity
        overlap = min(chunking.overlap_tokens, capacity // 3)
        self._crumb = capacity // _CRUMB_RATIO
        room = capacity - self._crumb
        self._plain = TextSplitter.from_callback(self.size, room, overlap, trim=False)
        self._marked_up = MarkdownSplitter.from_callback(self.size, room, overlap, trim=False)

    def size(self, text: str) -> int:
        """Tokens of a text. A run of letters that the model has no token for counts by its characters.

        A WordPiece model reads a long word, or a sentence without spaces, as one unknown token: a chunk
        measured so has no bounds.
        """
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        ids = encoding.ids
        if self._unknown not in ids:
            return len(ids)
        spans = zip(ids, encoding.offsets, strict=True)
        return len(ids) + sum(end - start - 1 for token, (start, end) in spans if token == self._unknown)

    def split(self, title: str, text: str, *, marked_up: bool) -> Iterator[Chunk]:
        """Chunks in order. Together they hold every character that is not blank."""
        headings = list(_headings(text)) if marked_up else []
        starts = [start for start, _ in headings]
        for first, last in self._pieces(text, marked_up):
            above = bisect_right(starts, first)
            heading = headings[above - 1][1] if above else ""
            yield Chunk(first, last, text[first:last], self._passage(title, heading, text[first:last]))

    def _pieces(self, text: str, marked_up: bool) -> Iterator[tuple[int, int]]:
        splitter = self._marked_up if marked_up else self._plain
        crumb: int | None = None
        for start, piece in splitter.chunk_indices(text):
            end = start + len(piece)
            first = start if crumb is None else crumb
            if self.size(text[first:end]) < self._crumb and end < len(text):
                crumb = first
                continue
            crumb = None
            yield from self._capped(text, first, end)

    def _capped(self, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        if start == end:
            return
        # Blanks taken off, or a grapheme of many characters, may leave more tokens than the splitter counted.
        if end - start > 1 and self.size(text[start:end]) > self._capacity:
            middle = (start + end) // 2
            yield from self._capped(text, start, middle)
            yield from self._capped(text, middle, end)
        else:
            yield start, end

    def _passage(self, title: str, heading: str, text: str) -> str:
        above = title if heading in {"", title} else f"{title}: {heading}"
        candidates = (f"{above}\n{text}", f"{title}\n{text}")
        fitting = (each for each in candidates if title and self.size(each) <= self._room)
        return self._prefix + next(fitting, text)


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    token = getattr(tokenizer.model, "unk_token", None)
    return tokenizer.token_to_id(token) if token else None


def _headings(text: str) -> Iterator[tuple[int, str]]:
    at, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        match = None if fenced else _HEADING.fullmatch(line.rstrip("\n"))
        if match:
            yield at, match.group(1)
        at += len(line)
