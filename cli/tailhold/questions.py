"""How often a search finds a page that answers: questions with the pages that do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class Question(BaseModel):
    """A question and where its answer stands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(alias="question", min_length=1)
    pages: tuple[str, ...] = Field(min_length=1)
    """Documents of which each answers it."""


@dataclass(frozen=True)
class Miss:
    """A question whose pages were not among the first k."""

    question: Question
    found: tuple[str, ...]
    """What was found instead, best first."""

    def __str__(self) -> str:
        return f"{self.question.text} wanted {', '.join(self.question.pages)}, found {', '.join(self.found)}"


@dataclass(frozen=True)
class HitRate:
    """The outcome for a set of questions."""

    asked: int
    misses: tuple[Miss, ...]

    @property
    def rate(self) -> float:
        """Share of the questions with a right page among the first k."""
        return 1 - len(self.misses) / self.asked


def load_questions(path: Path) -> tuple[Question, ...]:
    """Read a YAML list. Raises pydantic.ValidationError."""
    return TypeAdapter(tuple[Question, ...]).validate_python(yaml.safe_load(path.read_text()))


def hit_rate(questions: Sequence[Question], search: Callable[[str, int], Sequence[str]], k: int = 5) -> HitRate:
    """Ask each question; `search` gives the documents of the best k chunks, best first."""
    found = [(question, tuple(search(question.text, k))) for question in questions]
    misses = (Miss(question, pages) for question, pages in found if not set(pages) & set(question.pages))
    return HitRate(len(questions), tuple(misses))
