"""What a user asks for, and the load that it means."""

import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tailhold_bench.load.addresses import endpoint
from tailhold_bench.load.arrivals import Spacing, arrivals
from tailhold_bench.load.check import Bounds
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Limits
from tailhold_bench.load.lengths import Fixed
from tailhold_bench.load.objectives import Objective, parse_objective
from tailhold_bench.load.openai_http import HttpSettings
from tailhold_bench.load.questions import DEMO_TEXT, asked, corpus_words, from_file, from_words, with_repeats
from tailhold_bench.load.schedule import Schedule, schedule
from tailhold_bench.load.target import TargetSettings
from tailhold_bench.load.traces import read_trace
from tailhold_bench.load.words import lengths, seconds, shape

MOST_REQUESTS = 5_000_000
"""Each is kept in memory."""
_SECRET = "api_key"  # noqa: S105


@dataclass(frozen=True)
class Options:
    """The options of `tailhold load`, as they were written."""

    url: str = "http://127.0.0.1:8000/v1"
    rate: float = 1.0
    shape: str = "steady"
    arrivals: Spacing = Spacing.POISSON
    duration: str = "30s"
    requests: int | None = None
    warmup: str | None = None
    trace: Path | None = None
    trace_speed: float = 1.0
    questions: Path | None = None
    corpus: Path | None = None
    question_words: str = "12"
    max_tokens: str = "16"
    repeat_share: float = 0.0
    seed: int = 1
    model: str | None = None
    temperature: float = 0.0
    usage: bool = True
    api_key: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout: str = "60s"
    max_in_flight: int = 4096
    processes: int = 1
    max_lag: str | None = None
    this_target_is_mine: bool = False
    objectives: tuple[str, ...] = ()

    def command(self) -> dict[str, Any]:
        """For the report: everything but the key."""
        said = {name: value for name, value in asdict(self).items() if name != _SECRET}
        return {_camel(name): str(value) if isinstance(value, Path) else value for name, value in said.items()}

    @property
    def duration_seconds(self) -> float:
        """Over which requests are due."""
        return seconds(self.duration, "--duration")

    @property
    def warmup_seconds(self) -> float:
        """Whose requests count in no figure."""
        return seconds(self.warmup, "--warmup") if self.warmup else 0.0

    @property
    def limits(self) -> Limits:
        """Bounds of the run."""
        return Limits(seconds(self.timeout, "--timeout"), self.max_in_flight)

    @property
    def bounds(self) -> Bounds:
        """Of the generator itself."""
        return Bounds(seconds(self.max_lag, "--max-lag") if self.max_lag else None)

    def judged(self) -> tuple[Objective, ...]:
        """Raises LoadError."""
        return tuple(parse_objective(each) for each in self.objectives)

    def target(self) -> TargetSettings:
        """Raises LoadError."""
        if self.ca_file and not self.ca_file.is_file():
            raise LoadError(f"--ca-file {self.ca_file}: no such file; it holds certificates in PEM form")
        where = endpoint(self.url, is_own=self.this_target_is_mine)
        trusted = str(self.ca_file) if self.ca_file else None
        if where.is_grpc:
            return _grpc(where, self.model, self.api_key, trusted, self.temperature)
        return HttpSettings(where, self.model, self.api_key, trusted, self.temperature, self.usage)

    def schedule(self) -> Schedule:
        """All that will be sent. Raises LoadError."""
        if self.questions and self.corpus:
            raise LoadError("--questions and --corpus: name one of them")
        found = self._from_trace(self.trace) if self.trace else self._drawn()
        if not found.due:
            raise LoadError("no request falls into this time: raise --rate or --duration")
        if found.due[-1].at < self.warmup_seconds:
            raise LoadError(f"--warmup {self.warmup}: no request is due after it; make --duration longer")
        return found

    def at_rate(self, rate: float) -> "Options":
        """The same load, denser or thinner."""
        return replace(self, rate=rate)

    def _words(self) -> tuple[str, ...]:
        return corpus_words(self.corpus) if self.corpus else tuple(DEMO_TEXT.split())

    def _from_trace(self, path: Path) -> Schedule:
        length = lengths(self.max_tokens, "--max-tokens")
        if not isinstance(length, Fixed):
            raise LoadError("--trace: --max-tokens is one number then, for lines without one")
        found = read_trace(path, self._words(), speed=self.trace_speed, max_tokens=length.length, seed=self.seed)
        return Schedule(found.due[: self.requests])

    def _drawn(self) -> Schedule:
        pieces = shape(self.shape, self.rate, self.duration_seconds, self.seed)
        expected = sum(piece.requests for piece in pieces)
        if min(expected, self.requests or expected) > MOST_REQUESTS:
            raise LoadError(f"{expected:.0f} requests: at most {MOST_REQUESTS} in a run; lower --rate or --duration")
        if self.questions:
            fresh = from_file(self.questions)
        else:
            fresh = from_words(self._words(), lengths(self.question_words, "--question-words"), self.seed)
        said = asked(
            with_repeats(fresh, self.repeat_share, self.seed), lengths(self.max_tokens, "--max-tokens"), self.seed
        )
        return schedule(arrivals(pieces, self.arrivals, self.seed), said, self.requests)


def _grpc(*told: Any) -> TargetSettings:
    """Its library is slow to import, and wanted for this alone."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # it would say of its connections what the report says
    try:
        from tailhold_bench.load.rag_grpc import GrpcSettings
    except ModuleNotFoundError as error:
        raise LoadError(f"--url: {error.name} is missing: install tailhold[bench]") from None
    return GrpcSettings(*told)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
