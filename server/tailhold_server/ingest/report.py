"""What an index build says when it ends, well or not."""

from enum import StrEnum

from tailhold_api.fields import Model


class Why(StrEnum):
    """Why a document, or a whole source, is not in the index."""

    NO_TEXT = "no_text"
    ENCRYPTED = "encrypted"
    BROKEN = "broken"
    ENCODING = "encoding"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"
    CRASHED = "crashed"
    UNREADABLE = "unreadable"
    UNREACHABLE = "unreachable"
    UNSAFE_PATH = "unsafe_path"
    UNSUPPORTED = "unsupported"
    NOT_FINITE = "not_finite"
    EMPTY_SOURCE = "empty_source"


HINTS = {
    Why.NO_TEXT: "no text in it: a scan needs OCR before it can be indexed",
    Why.ENCRYPTED: "it asks for a password: store it without one",
    Why.BROKEN: "it cannot be parsed: check that it opens in a viewer",
    Why.ENCODING: "its character encoding is not known: store it as UTF-8",
    Why.TOO_LARGE: "it is over the size limit: split it",
    Why.TOO_SLOW: "reading it took over the time limit: split it or convert it to text",
    Why.CRASHED: "its parser ended: convert it to text",
    Why.UNREADABLE: "the file cannot be read: check that user 10001 may read it",
    Why.UNREACHABLE: "it cannot be fetched: check `archive.url`: the Job's pod must reach it",
    Why.UNSAFE_PATH: "its path or link leads out of the source: it is never followed",
    Why.UNSUPPORTED: "no reader for this kind of file: leave it out with `exclude`, or convert it",
    Why.NOT_FINITE: "the embedder gave NaN or a zero vector for it",
    Why.EMPTY_SOURCE: "no file matches: check `include`, `exclude` and the path",
}
"""The next step for each."""


class DocumentFailure(Model):
    """A document that is not in the index. The others are."""

    path: str
    """Source and path within it, or the source alone."""
    reason: Why
    hint: str
    """The next step, with the parser's words where it had some."""


class BuildReport(Model):
    """What was built."""

    snapshot: str
    """Digest of the snapshot."""
    documents: int
    """Documents that gave text."""
    failed_documents: int
    """Documents that did not."""
    deleted_documents: int = 0
    """Documents that are left out because they were deleted."""
    chunks: int
    """Passages in the index; equal ones count once."""
    reused: int
    """Of them, those whose vector an earlier snapshot had."""
    recall: float = 1.0
    """Share of the true best ten that a search with default parameters finds; 1 where it is exact."""
    recall_questions: int = 0
    """Passages that it was measured with; 0 where it is exact."""
    failures: tuple[DocumentFailure, ...]
    seconds: dict[str, float]
    """Time of each step."""


def failure(path: str, reason: Why, detail: str = "") -> DocumentFailure:
    """A failure with its hint."""
    hint = f"{HINTS[reason]} ({detail})" if detail else HINTS[reason]
    return DocumentFailure(path=path, reason=reason, hint=hint)


class UnreadableError(Exception):
    """One document cannot be read; the reason is for the report."""

    def __init__(self, reason: Why, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
