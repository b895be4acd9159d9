"""Markers are found however an answer is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tailhold_server.citations import Citation, Scanner, citations

PIECES = ("[1]", "[12]", "[2, 3]", "[3,4]", "[99]", "[", "]", "1", ", ", " ", "x", "\u4f60", "\U0001f680")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)


@given(TEXTS, st.lists(st.integers(0, 80), max_size=12))
def test_the_cut_of_an_answer_changes_no_citation(text: str, cuts: list[int]) -> None:
    scanner = Scanner(12)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = [each for a, b in pairwise(edges) for each in scanner.feed(text[a:b])]
    assert found == citations(text, 12)


@given(TEXTS)
def test_each_citation_is_a_marker_really_in_the_text(text: str) -> None:
    for each in citations(text, 12):
        marker = text[each.start : each.end]
        assert marker[0] == "["
        assert marker[-1] == "]"
        assert str(each.number) in marker
        assert 1 <= each.number <= 12


def test_numbers_without_a_source_are_no_citations() -> None:
    assert citations("as said [3] and [0] and [12]", 2) == []


def test_a_marker_may_hold_several_numbers() -> None:
    assert citations("so [1, 2].", 2) == [Citation(1, 3, 9), Citation(2, 3, 9)]
