"""What a run says, as data: the JSON file, from which tables and charts are made."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from tailhold_bench.load.check import Bounds, check
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.machine import Machine
from tailhold_bench.load.objectives import Judged, Objective, Verdict, judge
from tailhold_bench.load.percentiles import (
    Latency,
    Values,
    curve,
    intervals,
    latencies,
    mean_in_flight,
    peak_in_flight,
    percentile,
    time_in_system,
)
from tailhold_bench.load.samples import Outcome, Sample

SCHEMA = "tailhold.dev/load/v1"
PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
OUTSIDE = "outside"
"""Of an answer's time what the server did not see: the network, the queue in front of it, the generator's lag."""


class _Data(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        use_attribute_docstrings=True,
        ser_json_inf_nan="null",
    )


def _unknown_is_infinite(value: Any) -> Any:
    return math.inf if value is None else value


Milliseconds = Annotated[float, BeforeValidator(_unknown_is_infinite)]
"""null in JSON: infinite, where so many requests had no answer that this percentile is one of them."""


class Percentile(_Data):
    """One percentile of a latency."""

    percent: float
    """50 is the median."""
    milliseconds: Milliseconds
    """null where so many requests had no answer that this percentile is one of them."""
    low: Milliseconds
    """Lower end of the 95 % interval."""
    high: Milliseconds
    """Upper end; null where it lies among requests without an answer."""


class LatencyReport(_Data):
    """A latency over all requests after warm-up; those without an answer count as slower than any."""

    name: Latency
    count: int
    """Values; requests without an answer among them."""
    answered: int
    """Of them, finite ones."""
    mean_of_answered: float | None
    """Milliseconds."""
    percentiles: list[Percentile]
    curve: list[tuple[float, Milliseconds]]
    """Percent and milliseconds, denser towards 100, as HdrHistogram prints them."""


class StageReport(_Data):
    """A stage of answered requests, as the server measured it; `outside` is the time before and after all of them."""

    name: str
    """As the server calls it."""
    count: int
    """Answers with stages."""
    mean: float
    """Milliseconds."""
    p50: float
    """Milliseconds."""
    p95: float
    """Milliseconds."""
    p99: float
    """Milliseconds."""
    mean_of_slowest: float
    """Milliseconds, in the slowest twentieth of answers: what the tail is made of."""


class Fault(_Data):
    """Requests that went wrong in the same way."""

    outcome: Outcome
    detail: str
    """What the server or the connection said."""
    count: int
    """How many."""


class GeneratorReport(_Data):
    """Whether the generator itself kept up."""

    lag_p50: Milliseconds
    """Milliseconds between when a request was due and when it was handed to the socket; null where none was."""
    lag_p99: Milliseconds
    """The same."""
    lag_max: Milliseconds
    """The same."""
    lag_bound: float
    """Milliseconds that the p99 must not exceed."""
    cpu_shares: list[float]
    """Of each process while it sent, of one core."""
    cpu_bound: float
    """None of them may exceed it."""
    valid: bool
    """Whether the figures are about the server."""
    verdict: str
    """The same in words."""


class ObjectiveReport(_Data):
    """An objective and what came of it."""

    objective: str
    """As it was written."""
    verdict: Verdict
    good: int
    """Requests within the limit."""
    total: int
    """All requests, those without an answer among them."""
    share_low: float
    """Ends of the 95 % interval of the true share of good requests."""
    share_high: float
    shown: bool
    """Whether the whole interval lies on the verdict's side."""
    text: str
    """The same in words."""


class Rates(_Data):
    """What was offered beside what came of it, after warm-up; each over a time of its own."""

    due_seconds: float
    """From when the first request was due to when the last one was, and a mean gap more: the time of the offer."""
    due: float | None
    """Requests a second over `dueSeconds`: what was offered. null where there are not two."""
    seconds: float
    """From when the first request was sent to the end of the last answer, and at least `dueSeconds`."""
    answered: float
    """Answers a second over `seconds`, never above `due`: the less, the further the server fell behind."""
    output_tokens: float | None
    """Tokens of these answers a second over `seconds`, where the server counts them."""


class InFlight(_Data):
    """Requests under way, and what Little's law makes of them."""

    mean: float
    """Over the time from the first request to the last answer."""
    peak: int
    """At once."""
    little_mean_seconds: float | None
    """Mean in flight by the rate: the mean time that a request stays, counted without looking at any latency."""
    little_peak_seconds: float | None
    """How long requests would stay if the peak were the rule."""


class Columns(_Data):
    """All requests, a list for each property; times in seconds from the start, null is what never came."""

    number: list[int]
    due: list[float]
    begun: list[float | None]
    first_byte: list[float | None]
    first_token: list[float | None]
    last_token: list[float | None]
    ended: list[float | None]
    worst_gap: list[float]
    messages: list[int]
    max_tokens: list[int]
    prompt_tokens: list[int | None]
    output_tokens: list[int | None]
    outcome: list[Outcome]
    detail: list[str]
    stages: list[dict[str, float]]
    """Milliseconds."""
    trace: list[str]
    """Id of the answer's trace, where the server has one."""

    def samples(self) -> list[Sample]:
        """As they were measured."""
        names = list(type(self).model_fields)
        rows = zip(*(getattr(self, name) for name in names), strict=True)
        return [Sample(**dict(zip(names, row, strict=True))) for row in rows]


class LoadReport(_Data):
    """A run of `tailhold load`."""

    schema_: str = Field(SCHEMA, alias="schema")
    version: str
    """Of Tailhold."""
    began: str
    """Date and time, UTC."""
    command: dict[str, Any]
    """Each parameter with its value, the seed among them."""
    machine: Machine
    """Where the generator ran."""
    distinct_questions: int
    """How many different ones were due."""
    interrupted: bool
    """Whether Ctrl-C ended it."""
    outcomes: dict[Outcome, int]
    """How many requests after warm-up ended in each way."""
    warmup_requests: int
    """Requests before these, in no figure."""
    made_up: int = 0
    """Answers of a stand-in engine, after warm-up: their latencies are those that it was told, no model's."""
    rates: Rates
    latencies: list[LatencyReport]
    stages: list[StageReport]
    in_flight: InFlight
    generator: GeneratorReport
    objectives: list[ObjectiveReport]
    faults: list[Fault]
    columns: Columns

    def measured(self) -> list[Sample]:
        """The samples that count."""
        return self.columns.samples()[self.warmup_requests :]

    def latency(self, name: Latency) -> LatencyReport:
        """The one of this name."""
        return next(each for each in self.latencies if each.name is name)


class Setting(_Data):
    """What is known of a run beside its samples."""

    version: str
    began: str
    command: dict[str, Any]
    machine: Machine
    distinct_questions: int
    interrupted: bool
    warmup_seconds: float
    cpu_shares: list[float]
    bounds: Bounds


def report_of(samples: Sequence[Sample], setting: Setting, objectives: Sequence[Objective]) -> LoadReport:
    """Everything that is printed of a run, from its samples in the order of their numbers."""
    warmup = sum(sample.due < setting.warmup_seconds for sample in samples)
    counted = samples[warmup:]
    return LoadReport(
        **setting.model_dump(exclude={"warmup_seconds", "cpu_shares", "bounds"}),
        outcomes={outcome: sum(s.outcome is outcome for s in counted) for outcome in Outcome},
        warmup_requests=warmup,
        made_up=sum(s.made_up for s in counted),
        rates=_rates(counted),
        latencies=[_latency(latencies(counted, kind), kind) for kind in Latency],
        stages=_stages(counted),
        in_flight=_in_flight(counted),
        generator=_generator(samples, setting),
        objectives=[_judged(judge(each, counted)) for each in objectives],
        faults=_faults(counted),
        columns=_columns(samples),
    )


def _rates(samples: Sequence[Sample]) -> Rates:
    due_seconds = _due_seconds(samples)
    answered = [s for s in samples if s.outcome is Outcome.OK]
    tokens = [s.output_tokens for s in answered if s.output_tokens is not None]
    seconds = max(due_seconds, _seconds_at_work(samples))
    return Rates(
        due_seconds=due_seconds,
        due=len(samples) / due_seconds if due_seconds else None,
        seconds=seconds,
        answered=len(answered) / seconds if seconds else 0.0,
        output_tokens=sum(tokens) / seconds if tokens and seconds else None,
    )


def _due_seconds(samples: Sequence[Sample]) -> float:
    """The last request has its share of time like each before it."""
    return (samples[-1].due - samples[0].due) * len(samples) / (len(samples) - 1) if len(samples) > 1 else 0.0


def _seconds_at_work(samples: Sequence[Sample]) -> float:
    """A server that is behind still answers when no more is due: that time counts too."""
    begun = [s.begun for s in samples if s.begun is not None]
    ended = [s.ended for s in samples if s.outcome is Outcome.OK and s.ended is not None]
    return max(ended) - min(begun) if begun and ended else 0.0


def _latency(values: Values, kind: Latency) -> LatencyReport:
    finite = values[np.isfinite(values)]
    return LatencyReport(
        name=kind,
        count=len(values),
        answered=len(finite),
        mean_of_answered=1000 * float(finite.mean()) if len(finite) else None,
        percentiles=_percentiles(values),
        curve=[(percent, 1000 * value) for percent, value in curve(values)],
    )


def _percentiles(values: Values) -> list[Percentile]:
    around = intervals(values, PERCENTS) if len(values) else []
    return [
        Percentile(
            percent=percent,
            milliseconds=1000 * percentile(values, percent),
            low=1000 * each.low,
            high=1000 * each.high,
        )
        for percent, each in zip(PERCENTS, around, strict=False)
    ]


def stage_table(samples: Iterable[Sample]) -> tuple[Values, dict[str, Values]]:
    """Milliseconds of answers from when they were due, and of each stage, `outside` last, in the same order.

    The server's `total` is no stage.
    """
    known = [s for s in samples if s.outcome is Outcome.OK and s.stages and s.ended is not None]
    whole = np.array([1000 * ((s.ended or 0.0) - s.due) for s in known], np.float64)
    names = [name for name in (known[0].stages if known else ()) if name != "total"]
    table = {name: np.array([s.stages.get(name, 0.0) for s in known], np.float64) for name in names}
    if known:
        table[OUTSIDE] = np.maximum(0.0, whole - sum(table.values()))
    return whole, table


def _stages(samples: Sequence[Sample]) -> list[StageReport]:
    whole, table = stage_table(samples)
    slow = whole >= percentile(whole, 95) if len(whole) else whole
    return [
        StageReport(
            name=name,
            count=len(values),
            mean=float(values.mean()),
            p50=percentile(values, 50),
            p95=percentile(values, 95),
            p99=percentile(values, 99),
            mean_of_slowest=float(values[slow].mean()),
        )
        for name, values in table.items()
    ]


def _in_flight(samples: Sequence[Sample]) -> InFlight:
    mean, peak = mean_in_flight(samples), peak_in_flight(samples)
    rate = _handled_rate(samples)
    return InFlight(
        mean=mean,
        peak=peak,
        little_mean_seconds=time_in_system(mean, rate) if rate else None,
        little_peak_seconds=time_in_system(peak, rate) if rate else None,
    )


def _handled_rate(samples: Sequence[Sample]) -> float:
    spans = [(s.begun, s.ended) for s in samples if s.begun is not None and s.ended is not None]
    passed = max(e for _, e in spans) - min(b for b, _ in spans) if spans else 0.0
    return len(spans) / passed if passed > 0 else 0.0


def _generator(samples: Sequence[Sample], setting: Setting) -> GeneratorReport:
    lags = np.array([s.lag for s in samples if s.lag is not None], np.float64)
    p50, p99 = percentile(lags, 50), percentile(lags, 99)
    median = percentile(latencies(samples, Latency.E2E), 50)
    checked = check(p99, median, setting.cpu_shares, setting.bounds)
    return GeneratorReport(
        lag_p50=1000 * p50,
        lag_p99=1000 * p99,
        lag_max=1000 * float(lags.max()) if len(lags) else math.nan,
        lag_bound=1000 * checked.lag_bound_seconds,
        cpu_shares=[round(share, 4) for share in setting.cpu_shares],
        cpu_bound=setting.bounds.cpu_share,
        valid=checked.is_valid,
        verdict=checked.text,
    )


def _judged(judged: Judged) -> ObjectiveReport:
    return ObjectiveReport(
        objective=str(judged.objective),
        verdict=judged.verdict,
        good=judged.good,
        total=judged.total,
        share_low=judged.share.low,
        share_high=judged.share.high,
        shown=judged.is_shown,
        text=str(judged),
    )


def _faults(samples: Sequence[Sample]) -> list[Fault]:
    counts: dict[tuple[Outcome, str], int] = {}
    for sample in samples:
        if sample.outcome is not Outcome.OK:
            key = (sample.outcome, sample.detail)
            counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [Fault(outcome=outcome, detail=detail, count=count) for (outcome, detail), count in ordered]


def _columns(samples: Sequence[Sample]) -> Columns:
    return Columns(**{name: [_rounded(getattr(s, name)) for s in samples] for name in Columns.model_fields})


def _rounded(value: Any) -> Any:
    """To the microsecond, below which nothing here is true."""
    return round(value, 6) if isinstance(value, float) else value


def write(report: LoadReport, path: Path) -> None:
    """As JSON."""
    path.write_text(report.model_dump_json(by_alias=True) + "\n")


def read(path: Path) -> LoadReport:
    """Raises LoadError."""
    try:
        return LoadReport.model_validate_json(path.read_text())
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[:3]
        raise LoadError(f"{path}: no report of `tailhold load` of this version: {' '.join(first)}") from None
