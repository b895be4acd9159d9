"""What is asked: from a file, or put together from the words of a corpus. Pure, but for reading the files."""

import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from itertools import accumulate, cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.lengths import Lengths

_TEXTS = {".html", ".htm", ".xhtml", ".md", ".txt", ".rst"}
_MOST_BYTES = 20_000_000
"""Enough words for any load; a large corpus is not read to its end."""
_LEAST_WORDS = 20
_HOT = 20
_FORMS = "a .txt with a question a line, a .yaml list, or a .jsonl; items are texts or objects with `question`"
DEMO_TEXT = """
the package of a running system and its configuration file how to install remove upgrade a service from the network
mirror which user may read this directory what permissions does the root account need to mount a disk partition with
encryption before the kernel boots where are logs of the mail server kept for each day why is the firewall closed on
one interface when a virtual machine asks for an address who signs the release key of the archive can the database be
restored after the backup on another host does the printer accept jobs while the daemon restarts at night
"""
"""Words of a handbook for administrators, for loads without a corpus."""


class Asked(NamedTuple):
    """What a request says."""

    question: str
    max_tokens: int


def from_words(words: Sequence[str], question_words: Lengths, seed: int) -> Iterator[str]:
    """Questions of consecutive words, hardly one like another; a short vocabulary is gone round."""
    random = Random(f"{seed}/questions")  # noqa: S311  repeatable by intent
    while True:
        length = question_words.draw(random)
        parts: list[str] = []
        while len(parts) < length:
            first = random.randrange(len(words))
            parts += words[first : first + min(4, length - len(parts))]
        yield " ".join(parts).capitalize() + "?"


def with_repeats(fresh: Iterator[str], share: float, seed: int) -> Iterator[str]:
    """Of all questions, `share` are asked again out of a hot set: its n-th question with a weight of 1/n."""
    if share == 0:
        yield from fresh
        return
    random = Random(f"{seed}/repeats")  # noqa: S311  repeatable by intent
    hot = [next(fresh) for _ in range(_HOT)]
    weights = list(accumulate(1 / place for place in range(1, _HOT + 1)))
    while True:
        yield random.choices(hot, cum_weights=weights)[0] if random.random() < share else next(fresh)


def asked(questions: Iterator[str], max_tokens: Lengths, seed: int) -> Iterator[Asked]:
    """Questions with how long their answers may be."""
    random = Random(f"{seed}/answers")  # noqa: S311  repeatable by intent
    return (Asked(question, max_tokens.draw(random)) for question in questions)


def from_file(path: Path) -> Iterator[str]:
    """The questions of a file, in their order, again and again. Raises LoadError."""
    return cycle(read_questions(path))


def read_questions(path: Path) -> tuple[str, ...]:
    """Raises LoadError that names the file and the item."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--questions {path}: cannot be read: {error}") from None
    items = _items(path, text)
    found = tuple(_question(path, place, item) for place, item in enumerate(items, 1))
    if not found:
        raise LoadError(f"--questions {path}: holds no question; allowed are {_FORMS}")
    return found


def _items(path: Path, text: str) -> list[Any]:
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in lines]
        if path.suffix in (".yaml", ".yml", ".json"):
            read = yaml.safe_load(text)
            return read if isinstance(read, list) else [read]
    except (ValueError, yaml.YAMLError) as error:
        raise LoadError(f"--questions {path}: {error}; allowed are {_FORMS}") from None
    return list(lines)


def _question(path: Path, place: int, item: Any) -> str:
    said = item.get("question") if isinstance(item, dict) else item
    if not isinstance(said, str) or not said.strip():
        raise LoadError(f"--questions {path}: item {place} has no question; allowed are {_FORMS}")
    return said.strip()


def corpus_words(folder: Path) -> tuple[str, ...]:
    """The words of a folder's documents, in their order. Raises LoadError."""
    words: list[str] = []
    left = _MOST_BYTES
    for path in sorted(each for each in folder.rglob("*") if each.suffix.lower() in _TEXTS and each.is_file()):
        text = path.read_text(errors="replace")
        left -= len(text)
        words += re.findall(r"[^\W\d_][\w'-]+", _plain(text) if path.suffix.lower() not in (".md", ".txt") else text)
        if left < 0:
            break
    if len(words) < _LEAST_WORDS:
        raise LoadError(
            f"--corpus {folder}: {len(words)} words found, {_LEAST_WORDS} are needed, in {', '.join(sorted(_TEXTS))}"
        )
    return tuple(words)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


def _plain(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    return " ".join(parser.parts)
