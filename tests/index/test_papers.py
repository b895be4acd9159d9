import pytest
from tests.index.pdf_files import pdf

from tailhold_server.ingest.extract import extract
from tailhold_server.ingest.papers import join_lines
from tailhold_server.ingest.report import UnreadableError, Why


def test_a_pdf_has_its_text_and_its_title() -> None:
    read = extract("report.pdf", pdf(["Printers are on floor 3.", "Ask Ann."], title="House rules"))
    assert read.title == "House rules"
    assert read.text.split() == ["Printers", "are", "on", "floor", "3.", "Ask", "Ann."]


def test_c94_words_broken_at_a_line_end_are_whole() -> None:
    assert extract("a.pdf", pdf(["More infor-", "mation is here."])).text.split()[1] == "information"


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("infor-\nmation", "information"),
        ("infor\u00ad\r\nmation", "information"),
        ("infor\ufffe\nmation", "information"),
        ("pages 10-\n20", "pages 10-\n20"),
        ("a well-\nKnown", "a well-\nKnown"),
        ("a - b\nc", "a - b\nc"),
    ],
)
def test_c94_only_hyphens_within_words_are_joined(broken: str, whole: str) -> None:
    assert join_lines(broken) == whole


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (pdf([]), Why.NO_TEXT),
        (pdf(["secret"], encrypted=True), Why.ENCRYPTED),
        (pdf(["cut"])[:60], Why.BROKEN),
        (b"%PDF-1.7 and nothing else", Why.BROKEN),
        (b"", Why.BROKEN),
    ],
)
def test_c89_a_pdf_without_readable_text_says_why(data: bytes, reason: Why) -> None:
    with pytest.raises(UnreadableError) as failed:
        extract("scan.pdf", data)
    assert failed.value.reason is reason
