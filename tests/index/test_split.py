from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tailhold_api.serving import Embedder
from tailhold_api.sources import Chunking, ModelSource
from tailhold_server.adapters.encoder import load_tokenizer
from tailhold_server.errors import StartError
from tailhold_server.ingest.split import Chunk, Splitter

ALPHABETS = st.sampled_from(
    ["ab c\n", "員工年假。！ ", "พนักงาน ", "क।ा ", "👩‍👩‍👧 é\u0301", "# `-\n a", "x\u0001\t\u00a0"]
)


@pytest.fixture(scope="module")
def tokenizer(minilm: Path) -> Tokenizer:
    return load_tokenizer(minilm)


def embedder(**settings_: object) -> Embedder:
    return Embedder.model_validate({"model": ModelSource(path="/x"), "dimension": 384, **settings_})


def splitter(tokenizer: Tokenizer, most: int = 200, overlap: int = 20, **settings_: object) -> Splitter:
    return Splitter(tokenizer, embedder(**settings_), Chunking(max_tokens=most, overlap_tokens=overlap))


def check(chunks: list[Chunk], text: str, tokenizer: Tokenizer, most: int, room: int = 256) -> None:
    covered: set[int] = set()
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text.strip() == chunk.text != ""
        covered.update(range(chunk.start, chunk.end))
        assert len(tokenizer.encode(chunk.text, add_special_tokens=False).ids) <= most or len(chunk.text) == 1
        assert len(tokenizer.encode(chunk.passage).ids) <= room
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)
    assert all(at in covered for at, letter in enumerate(text) if not letter.isspace()), "text was lost"


@pytest.mark.parametrize("marked_up", [True, False])
def test_c86_text_without_spaces_is_cut_by_tokens(tokenizer: Tokenizer, marked_up: bool) -> None:
    chinese = "员工每年有十五天带薪假期。" * 400 + "复印机密码是蓝色。"
    thai = "พนักงานลาพักร้อนได้" * 300
    hindi = "कर्मचारियों को हर साल पंद्रह दिन की छुट्टी मिलती है।" * 200
    blob = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 200
    for text in (chinese, thai, hindi, blob):
        chunks = list(splitter(tokenizer).split("t", text, marked_up=marked_up))
        assert len(chunks) > 10
        check(chunks, text, tokenizer, 200)
        assert max(len(chunk.text) for chunk in chunks) < 1500
    last = list(splitter(tokenizer).split("", chinese, marked_up=marked_up))[-1]
    assert last.text.endswith("复印机密码是蓝色。")
    assert all(chunk.text[-1] in "。" for chunk in splitter(tokenizer).split("", chinese, marked_up=marked_up))


@pytest.mark.parametrize("words", [509, 510, 511, 512, 513, 2000])
@pytest.mark.parametrize("prefix", ["", "passage: "])
def test_c91_no_passage_is_over_the_models_limit_with_special_tokens_and_prefix(
    tokenizer: Tokenizer, words: int, prefix: str
) -> None:
    text = "alpha " * words
    cut = splitter(tokenizer, 8192, 0, max_tokens=512, passage_prefix=prefix)
    chunks = list(cut.split("A title that is put before", text, marked_up=False))
    check(chunks, text, tokenizer, 510, room=512)
    assert all(chunk.passage.startswith(prefix) for chunk in chunks)


def test_c91_no_room_for_text_is_said_at_the_start(tokenizer: Tokenizer) -> None:
    with pytest.raises(StartError, match="maxTokens"):
        splitter(tokenizer, max_tokens=16, passage_prefix="one two three four five")


@settings(deadline=None, max_examples=60)
@given(data=st.data(), most=st.integers(32, 60), marked_up=st.booleans())
def test_c86_chunks_cover_the_text_under_the_cap(minilm: Path, data: st.DataObject, most: int, marked_up: bool) -> None:
    tokenizer = load_tokenizer(minilm)
    text = "".join(data.draw(st.lists(st.text(data.draw(ALPHABETS), max_size=300), max_size=3)))
    overlap = data.draw(st.integers(0, most // 2))
    chunks = list(splitter(tokenizer, most, overlap).split("A title", text, marked_up=marked_up))
    check(chunks, text, tokenizer, most)


def test_neighbours_overlap(tokenizer: Tokenizer) -> None:
    text = " ".join(f"Sentence number {n} is here." for n in range(300))
    chunks = list(splitter(tokenizer, 100, 30).split("t", text, marked_up=False))
    assert all(after.start < before.end for before, after in pairwise(chunks))


def test_a_heading_never_stands_alone(tokenizer: Tokenizer) -> None:
    body = " ".join(f"Word{n} follows the other words of this long paragraph." for n in range(60))
    text = f"# Title\n\n## First part\n\n{body}\n\n## Second part\n\n{body}"
    chunks = list(splitter(tokenizer).split("Title", text, marked_up=True))
    check(chunks, text, tokenizer, 200)
    assert all(len(chunk.text) > 100 for chunk in chunks)


def test_a_passage_bears_the_titles_of_document_and_section(tokenizer: Tokenizer) -> None:
    text = (
        "# Title\n\n## First\n\nText one.\n\n```\n# no heading\n```\n\nAfter.\n\n## Second\n\n"
        + "Text two is long. " * 60
    )
    chunks = list(splitter(tokenizer, 64, 0).split("Title", text, marked_up=True))
    assert chunks[-1].passage == f"Title: Second\n{chunks[-1].text}"
    assert not any("Title: no heading" in chunk.passage for chunk in chunks)
