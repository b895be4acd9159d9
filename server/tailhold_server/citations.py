"""Markers like `[2]` in an answer, found while it is written."""

import re
from dataclasses import dataclass

_MARKER = re.compile(r"\[(\d{1,3}(?:,? ?\d{1,3}){0,9})\]")
_OPEN = re.compile(r"\[[\d, ]{0,49}\Z")


@dataclass(frozen=True)
class Citation:
    """One number within a marker, and where the marker stands in the answer, in characters."""

    number: int
    start: int
    end: int


class Scanner:
    """Finds markers in text that comes in pieces; equal texts give equal citations, however they are cut."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._pending = ""
        self._offset = 0

    def feed(self, text: str) -> list[Citation]:
        """The citations that this piece completes."""
        self._pending += text
        found = [citation for match in _MARKER.finditer(self._pending) for citation in self._of(match)]
        self._forget()
        return found

    def _of(self, match: re.Match[str]) -> list[Citation]:
        numbers = dict.fromkeys(int(digits) for digits in re.findall(r"\d+", match[1]))
        start, end = self._offset + match.start(), self._offset + match.end()
        return [Citation(number, start, end) for number in numbers if 1 <= number <= self._sources]

    def _forget(self) -> None:
        opened = _OPEN.search(self._pending)
        keep_from = opened.start() if opened else len(self._pending)
        self._offset += keep_from
        self._pending = self._pending[keep_from:]


def citations(text: str, sources: int) -> list[Citation]:
    """All citations of a whole answer."""
    return Scanner(sources).feed(text)
