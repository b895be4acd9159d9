"""Recorded loads: arrival times with questions or sizes, as JSONL or CSV, in our names or those of public traces."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.lengths import Fixed
from tailhold_bench.load.questions import Asked, from_words
from tailhold_bench.load.schedule import Due, Schedule

FORMS = (
    "our own (at_seconds, and question or input_tokens, max_tokens), Mooncake's JSONL (timestamp in milliseconds, "
    "input_length, output_length) and Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens)"
)
_WORDS_A_TOKEN = 0.75
"""English; what the server counts stands in the report."""


@dataclass(frozen=True)
class _Entry:
    at: float
    question: str | None
    input_tokens: int | None
    max_tokens: int | None


def read_trace(path: Path, words: tuple[str, ...], *, speed: float, max_tokens: int, seed: int) -> Schedule:
    """The trace from its first arrival on, `speed` times as fast. Sizes become questions of about as many tokens.

    Raises LoadError that names the line.
    """
    entries = sorted(_entries(path), key=lambda each: each.at)
    if not entries:
        raise LoadError(f"--trace {path}: holds no request; forms: {FORMS}")
    first = entries[0].at
    random = Random(f"{seed}/trace")  # noqa: S311  repeatable by intent
    due = (
        Due(number, (each.at - first) / speed, _asked(each, words, max_tokens, random.randrange(2**32)))
        for number, each in enumerate(entries)
    )
    return Schedule(tuple(due))


def _asked(entry: _Entry, words: tuple[str, ...], max_tokens: int, seed: int) -> Asked:
    length = Fixed(max(1, round((entry.input_tokens or 16) * _WORDS_A_TOKEN)))
    question = entry.question or next(from_words(words, length, seed))
    return Asked(question, entry.max_tokens or max_tokens)


def _entries(path: Path) -> Iterator[_Entry]:
    try:
        with path.open(newline="") as file:
            if path.suffix == ".csv":
                rows = csv.DictReader(file)
                for row in rows:
                    yield _entry(path, rows.line_num, row)
                return
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _entry(path, number, _object(path, number, line))
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"--trace {path}: cannot be read: {error}") from None


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        read = json.loads(line)
    except ValueError as error:
        raise LoadError(f"--trace {path}, line {number}: no JSON: {error}") from None
    if not isinstance(read, dict):
        raise LoadError(f"--trace {path}, line {number}: no JSON object; forms: {FORMS}")
    return read


def _entry(path: Path, number: int, row: dict[str, Any]) -> _Entry:
    try:
        return _Entry(
            _at(row),
            row.get("question") or None,
            _whole(row, "input_tokens", "input_length", "ContextTokens"),
            _whole(row, "max_tokens", "output_length", "GeneratedTokens"),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise LoadError(f"--trace {path}, line {number}: {_said(error)}; forms: {FORMS}") from None


def _said(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def _at(row: dict[str, Any]) -> float:
    if "TIMESTAMP" in row:
        return datetime.fromisoformat(row["TIMESTAMP"]).replace(tzinfo=UTC).timestamp()
    if "timestamp" in row:
        return float(row["timestamp"]) / 1000
    at = float(row["at_seconds"])
    if not 0 <= at < float("inf"):
        raise ValueError(f"at_seconds {at} is not a time from 0 on")
    return at


def _whole(row: dict[str, Any], *names: str) -> int | None:
    name = next((each for each in names if row.get(each) not in (None, "")), None)
    if name is None:
        return None
    value = int(row[name])
    if value < 0:
        raise ValueError(f"{name} {value} is below 0")
    return value
