"""Bytes to text. The mark at the start decides, then UTF-8, then what the document declares, then a guess."""

import codecs
import re
import unicodedata
from typing import NamedTuple

from tailhold_server.ingest.report import UnreadableError, Why

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9_.:-]{2,40})""")
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7"})
"""Codecs that read plain letters as escapes; some give lone surrogates, which no file can hold."""
_DECLARED_WITHIN = 2048
_LIKELIEST = "cp1252"
"""Of guesses that are equally good, the encoding met most often."""
_NUL_RATIO = 0.3
"""UTF-16 of a Latin text has a NUL at every other place; no text has so many."""


class Decoded(NamedTuple):
    """Text and how sure its encoding is."""

    text: str
    encoding: str
    confidence: float
    """1 where the document says it or UTF-8 proves it."""


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Text without mark and NUL. Raises UnreadableError rather than dropping what it cannot read.

    `declared` is what the transport said, as in a Content-Type.
    """
    found = _marked(data) or _wide(data) or _as(data, "utf-8") or _declared(data, declared) or _guess(data)
    if found is None:
        raise UnreadableError(Why.ENCODING)
    return found._replace(text=found.text.replace("\0", ""))


def _marked(data: bytes) -> Decoded | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _as(data[len(mark) :], encoding)
    return None


def _wide(data: bytes) -> Decoded | None:
    half = max(1, len(data) // 2)
    if data[1::2].count(0) > half * _NUL_RATIO:
        return _as(data, "utf-16-le")
    if data[::2].count(0) > half * _NUL_RATIO:
        return _as(data, "utf-16-be")
    return None


def _declared(data: bytes, declared: str | None) -> Decoded | None:
    match = _DECLARED.search(data[:_DECLARED_WITHIN])
    names = (declared, match and match.group(1).decode("ascii"))
    return next((found for name in names if name and (found := _as(data, name))), None)


def _as(data: bytes, encoding: str, confidence: float = 1.0) -> Decoded | None:
    try:
        # Only text encodings: "hex" and "zip" are codecs too, and escapes would be read as what they stand for.
        found = codecs.lookup(encoding)
        if not found._is_text_encoding or found.name in _NO_CHARSETS:
            return None
        return Decoded(data.decode(encoding), encoding, confidence)
    except (LookupError, ValueError):
        return None


def _guess(data: bytes) -> Decoded | None:
    from charset_normalizer import from_bytes

    # Short samples fit many encodings equally well: what no language writes goes last, what is common first.
    matches = sorted(
        from_bytes(data),
        key=lambda match: (
            match.chaos,
            -match.coherence,
            _is_jumble(str(match)),
            match.encoding != _LIKELIEST,
        ),
    )
    if not matches:
        return None
    best = matches[0]
    return Decoded(str(best), best.encoding, round(1 - best.chaos, 3))


def _is_jumble(text: str) -> bool:
    scripts = {unicodedata.name(letter, "?").split()[0] for letter in text[:2000] if letter.isalpha()}
    return {"HANGUL", "CJK"} <= scripts
