import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailhold_server.ingest.extract import extract
from tailhold_server.ingest.pages import read_html
from tailhold_server.ingest.report import UnreadableError, Why

WORD = st.text("abcdefghij", min_size=3, max_size=8)


def test_c94_blocks_are_apart_and_inline_elements_are_not() -> None:
    title, text = read_html(
        "<nav>Home|Jobs|Contact</nav><h1>Leave&nbsp;policy</h1><p>Un<b>paid</b> leave: 10&#8209;day maximum"
        "<table><tr><td>A<td>B</table><!-- <p>hidden --><p>end"
    )
    assert title == "Leave policy"
    assert "Unpaid leave: 10\u2011day maximum" in text
    assert re.search(r"\bA\s+B\b", text)
    assert "end" in text.split()
    assert "Home|Jobs" not in text
    assert "hidden" not in text


def test_c94_what_frames_the_page_is_left_out() -> None:
    _, text = read_html(
        "<html><head><title>T</title><style>p{}</style></head><body><header>Logo</header>"
        "<ul class='docnav'><li>Prev</li></ul><div role='navigation'>Menu</div>"
        "<main><header><h1>Rota</h1></header>"
        "<p>Ann is on duty.</p><script>var a</script></main><footer>Imprint</footer></body></html>"
    )
    assert text == "# Rota\n\nAnn is on duty."


def test_c94_menus_that_no_tag_marks_are_left_out_of_an_article() -> None:
    menu = "".join(f"<div><a href='/{n}'>Section number {n}</a></div>" for n in range(30))
    body = "".join(
        f"<p>Paragraph {n} says that the office in street {n} closes at noon on Friday.</p>" for n in range(12)
    )
    _, text = read_html(f"<html><body><div>{menu}</div><article><h1>Offices</h1>{body}</article></body></html>")
    assert all(f"street {n} closes" in text for n in range(12))
    assert "Section number" not in text


def test_a_shell_prompt_is_no_heading_and_keeps_its_indent() -> None:
    _, text = read_html("<p>Run:</p><pre># apt update\n  if true;\n    <b>done</b></pre><p>Then wait.</p>")
    assert text == "Run:\n\n```\n# apt update\n  if true;\n    done\n```\n\nThen wait."


def test_lists_and_headings_keep_their_form() -> None:
    _, text = read_html("<h2>Steps</h2><ul><li><p>one</p></li><li>two<br>lines</li></ul>")
    assert text == "## Steps\n\n- one\n\n- two\n\nlines" or text.startswith("## Steps\n\n- one")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["p", "div", "li", "td", "h2", "b", "span", "section"]), WORD), min_size=1))
def test_c94_no_word_of_the_body_is_lost(parts: list[tuple[str, str]]) -> None:
    page = " ".join(f"<{tag}>{word}</{tag}>" for tag, word in parts)
    _, text = read_html(f"<html><body>{page}</body></html>")
    assert re.findall(r"\w+", text) == [word for _, word in parts]


@settings(deadline=None)
@given(st.text("<>/=\"'&;#! abpdivtl-\0\x01\n", max_size=200))
def test_c94_malformed_pages_never_raise(page: str) -> None:
    read_html(page)
    read_html(f"<html><body><p>{page}")


def test_deep_nesting_is_read() -> None:
    _, text = read_html("<div>" * 300 + "deep" + "</div>" * 300)
    assert text == "deep"


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("empty.txt", b""),
        ("blank.txt", " \n\t\u00a0\u200b ".encode()),
        ("script.html", b"<html><script>var a=1</script><style>p{}</style></html>"),
        ("comment.html", b"<!-- nothing -->"),
    ],
)
def test_c89_documents_without_text_say_so(path: str, data: bytes) -> None:
    with pytest.raises(UnreadableError) as failed:
        extract(path, data)
    assert failed.value.reason is Why.NO_TEXT


@pytest.mark.parametrize(
    ("path", "data", "title"),
    [
        ("a/b.html", b"<title>9.9. Quotas</title><p>x", "9.9. Quotas"),
        ("a/b.html", b"<p>no title", "b"),
        ("notes.md", b"intro\n\n# The *real* title #\ntext", "The *real* title"),
        ("notes.txt", b"just text", "notes"),
        ("page", b"<!DOCTYPE html><title>Sniffed</title><p>x", "Sniffed"),
        ("nul.html", b"<title>x\0y</title><p>z", "xy"),
    ],
)
def test_c85_every_document_has_a_title(path: str, data: bytes, title: str) -> None:
    assert extract(path, data).title == title


def test_binary_files_are_not_guessed_at() -> None:
    with pytest.raises(UnreadableError) as failed:
        extract("letter.txt", b"PK\x03\x04 zip content")
    assert failed.value.reason is Why.UNSUPPORTED
