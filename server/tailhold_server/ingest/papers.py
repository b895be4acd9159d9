"""Text of PDF files."""

import re
from typing import Any

from tailhold_server.ingest.report import UnreadableError, Why

_BROKEN_WORD = re.compile(r"(?<=[^\W\d_])(?:[-\u00ad\u2010]\r?\n|[\x02\ufffe](?:\r?\n)?)(?=[^\W\d_])(?![A-Z])")
"""A word broken over two lines. Where pdfium knows a line's last hyphen, it gives U+0002 or U+FFFE for it."""
_OTHER_HYPHEN = re.compile("[\x02\ufffe]")
_PASSWORD = 4
"""pdfium's FPDF_ERR_PASSWORD."""


def read_pdf(data: bytes) -> tuple[str, str]:
    """Title, or nothing, and the text of all pages. Raises UnreadableError."""
    import pypdfium2  # type: ignore[import-untyped]

    try:
        paper = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        encrypted = getattr(error, "err_code", None) == _PASSWORD or "password" in str(error).lower()
        raise UnreadableError(Why.ENCRYPTED if encrypted else Why.BROKEN, str(error)) from error
    with paper:
        title = paper.get_metadata_dict().get("Title", "")
        text = "\n\n".join(_page(paper, number) for number in range(len(paper)))
    return title.replace("\0", "").strip(), join_lines(text)


def join_lines(text: str) -> str:
    """Words that a line's end broke become whole, and lines end in one way."""
    whole = _OTHER_HYPHEN.sub("-", _BROKEN_WORD.sub("", text))
    return whole.replace("\r\n", "\n").replace("\r", "\n")


def _page(paper: Any, number: int) -> str:
    import pypdfium2

    try:
        page = paper[number]
        return str(page.get_textpage().get_text_bounded())
    except pypdfium2.PdfiumError as error:
        raise UnreadableError(Why.BROKEN, f"page {number + 1}: {error}") from error
