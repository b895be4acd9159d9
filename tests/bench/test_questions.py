"""What is asked, and recorded loads."""

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.generate import ROOT
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.lengths import Fixed, LogNormal, Uniform
from tailhold_bench.load.questions import DEMO_TEXT, corpus_words, from_words, read_questions, with_repeats
from tailhold_bench.load.traces import read_trace
from tailhold_bench.load.words import lengths

WORDS = tuple(DEMO_TEXT.split())


@given(st.integers(1, 300), st.integers(0, 2**32))
def test_made_questions_have_their_length_and_follow_from_the_seed(length: int, seed: int) -> None:
    made = list(islice(from_words(WORDS, Fixed(length), seed), 5))
    assert [len(each.split()) for each in made] == [length] * 5
    assert made == list(islice(from_words(WORDS, Fixed(length), seed), 5))


def test_made_questions_hardly_repeat() -> None:
    made = list(islice(from_words(WORDS, Fixed(12), 1), 2000))
    assert len(set(made)) > 1990


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_repeats_is_what_was_asked(share: float) -> None:
    fresh = (f"question {number}" for number in range(100_000))
    asked = list(islice(with_repeats(fresh, share, 1), 5000))
    again = [place for place, each in enumerate(asked) if int(each.split()[1]) < 20]
    assert len(again) / 5000 == pytest.approx(share, abs=0.03)
    if share:
        counts = sorted((asked.count(f"question {number}") for number in range(20)), reverse=True)
        assert counts[0] > 4 * counts[-1]


@given(st.integers(1, 50), st.integers(0, 50), st.integers(0, 2**32))
def test_lengths_stay_within_their_bounds(least: int, more: int, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    assert least <= Uniform(least, least + more).draw(random) <= least + more
    assert 1 <= LogNormal(least, 2.0, least + more).draw(random) <= least + more


@pytest.mark.parametrize("text", ["0", "8-4", "lognormal:sigma=1", "lognormal:median=x", "many", "-3", "1.5"])
def test_a_wrong_length_names_what_is_allowed(text: str) -> None:
    with pytest.raises(LoadError, match=r"--max-tokens .*allowed are 16, 8-64, or lognormal"):
        lengths(text, "--max-tokens")


def test_questions_come_from_the_usual_files(tmp_path: Path) -> None:
    plain, listed, lines = tmp_path / "q.txt", ROOT / "examples" / "questions.yaml", tmp_path / "q.jsonl"
    plain.write_text("Why?\n\nHow?\n")
    lines.write_text('{"question": "Why?"}\n"How?"\n')
    assert read_questions(plain) == read_questions(lines) == ("Why?", "How?")
    assert len(read_questions(listed)) == 30


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("q.txt", "", "holds no question"),
        ("q.jsonl", '{"question": "Why?"}\n{"answer": 1}', "item 2 has no question"),
        ("q.jsonl", "{", "Expecting"),
        ("q.yaml", "a: [", "while parsing"),
    ],
)
def test_a_faulty_file_of_questions_is_named_with_what_is_allowed(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(LoadError, match=r"allowed are a \.txt") as caught:
        read_questions(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    with pytest.raises(LoadError, match="cannot be read"):
        read_questions(tmp_path / "none.txt")


def test_the_words_of_a_corpus_are_those_that_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<style>colour</style><p>{' '.join(WORDS)}</p><script>let hidden</script>")
    words = corpus_words(tmp_path)
    assert {"package", "firewall"} <= set(words)
    assert not {"colour", "hidden", "style"} & set(words)
    (tmp_path / "a.html").write_text("too few")
    with pytest.raises(LoadError, match="2 words found, 20 are needed"):
        corpus_words(tmp_path)


def trace(tmp_path: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_our_own_trace_is_replayed_with_its_questions(tmp_path: Path) -> None:
    lines = [{"at_seconds": 12, "question": "Why?", "max_tokens": 3}, {"at_seconds": 10.5, "input_tokens": 40}]
    path = trace(tmp_path, "\n".join(json.dumps(line) for line in lines))
    first, second = read_trace(path, WORDS, speed=3, max_tokens=7, seed=1).due
    assert (first.at, first.asked.max_tokens, len(first.asked.question.split())) == (0.0, 7, 30)
    assert (second.at, second.asked) == (0.5, ("Why?", 3))


def test_public_traces_are_read_as_they_are_published(tmp_path: Path) -> None:
    mooncake = trace(tmp_path, '{"timestamp": 27000, "input_length": 8, "output_length": 52, "hash_ids": [1]}\n' * 2)
    assert read_trace(mooncake, WORDS, speed=1, max_tokens=1, seed=1).due[0].asked.max_tokens == 52
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    azure = trace(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows, "trace.csv")
    first, second = read_trace(azure, WORDS, speed=1, max_tokens=1, seed=1).due
    assert second.at == pytest.approx(4.314579)
    assert (first.asked.max_tokens, second.asked.max_tokens) == (44, 109)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"question": "Why?"}', "at_seconds is missing"),
        ('{"at_seconds": "soon"}', "could not convert"),
        ('{"at_seconds": -1}', "not a time from 0 on"),
        ('{"at_seconds": 1, "max_tokens": -4}', "max_tokens -4 is below 0"),
    ],
)
def test_a_faulty_line_of_a_trace_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = trace(tmp_path, '{"at_seconds": 0}\n\n' + line)
    with pytest.raises(LoadError, match=r"trace\.jsonl, line 3: ") as caught:
        read_trace(path, WORDS, speed=1, max_tokens=1, seed=1)
    assert said in str(caught.value)


def test_a_faulty_row_of_a_csv_is_named(tmp_path: Path) -> None:
    path = trace(tmp_path, "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46,3\nyesterday,3\n", "trace.csv")
    with pytest.raises(LoadError, match=r"trace\.csv, line 3: Invalid isoformat"):
        read_trace(path, WORDS, speed=1, max_tokens=1, seed=1)
    with pytest.raises(LoadError, match="holds no request; forms: our own"):
        read_trace(trace(tmp_path, ""), WORDS, speed=1, max_tokens=1, seed=1)
