"""One document's bytes to title and text, by what kind of file it is."""

import re
from pathlib import PurePosixPath

from tailhold_api.fields import Model
from tailhold_server.ingest.decode import decode
from tailhold_server.ingest.pages import read_html
from tailhold_server.ingest.papers import read_pdf
from tailhold_server.ingest.report import UnreadableError, Why

_TITLE_LENGTH = 200
_INVISIBLE = re.compile(r"[\s\u200b-\u200f\u2060\ufeff\u00ad]+")
_HTML = frozenset({".html", ".htm", ".xhtml"})
_MARKDOWN = frozenset({".md", ".markdown"})
_BINARY = (b"PK\x03\x04", b"\x89PNG", b"\xff\xd8\xff", b"\x7fELF", b"\x1f\x8b", b"GIF8", b"\xd0\xcf\x11\xe0")


class Extracted(Model):
    """What a document holds."""

    title: str
    text: str
    marked_up: bool
    """Whether headings stand as in Markdown."""
    encoding: str = ""
    confidence: float = 1.0
    """How sure the encoding is."""


def extract(path: str, data: bytes, charset: str | None = None) -> Extracted:
    """Read one document. Raises UnreadableError; a document of blanks alone is `no_text`."""
    found = _read(path, data, charset)
    if not _INVISIBLE.sub("", found.text):
        raise UnreadableError(Why.NO_TEXT)
    title = _SPACES.sub(" ", found.title.replace("\0", "")).strip() or PurePosixPath(path).stem
    return found.model_copy(update={"title": title[:_TITLE_LENGTH]})


_SPACES = re.compile(r"\s+")


def _read(path: str, data: bytes, charset: str | None) -> Extracted:
    if data[:1024].lstrip().startswith(b"%PDF-") or path.lower().endswith(".pdf"):
        title, text = read_pdf(data)
        return Extracted(title=title, text=text.replace("\0", ""), marked_up=False)
    if data.startswith(_BINARY):
        raise UnreadableError(Why.UNSUPPORTED)
    text, encoding, confidence = decode(data, charset)
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _HTML or re.match(r"\s*(<!doctype html|<html)", text, re.IGNORECASE):
        title, text = read_html(text)
        return Extracted(title=title, text=text, marked_up=True, encoding=encoding, confidence=confidence)
    marked_up = suffix in _MARKDOWN
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    title = _heading(text) if marked_up else ""
    return Extracted(title=title, text=text, marked_up=marked_up, encoding=encoding, confidence=confidence)


def _heading(text: str) -> str:
    match = re.search(r"(?m)^#{1,2}[ \t]+(.+?)[ \t#]*$", text)
    return match.group(1) if match else ""
