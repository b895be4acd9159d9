"""`ttft=100ms@95`: at least 95 % of all requests have their first token within 100 ms of when they were due."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.percentiles import Interval, Latency, latencies, share_within
from tailhold_bench.load.samples import Sample
from tailhold_bench.load.words import seconds

_FORM = "write METRIC=TIME@PERCENT, as in ttft=100ms@95 or e2e=2s@99; METRIC is one of " + ", ".join(Latency)


class Verdict(StrEnum):
    """Whether an objective was met in a run."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    UNDECIDED = "undecided"
    """Too few requests for such a percentile to mean anything."""


@dataclass(frozen=True)
class Objective:
    """A share of requests that must not be slower than a limit."""

    latency: Latency
    limit_seconds: float
    percent: float

    def __str__(self) -> str:
        return f"{self.latency}={self.limit}@{self.percent:g}"

    @property
    def limit(self) -> str:
        """As it is written."""
        return f"{self.limit_seconds * 1000:g}ms" if self.limit_seconds < 1 else f"{self.limit_seconds:g}s"

    @property
    def least_samples(self) -> int:
        """Below it not even one request in excess is allowed."""
        return math.ceil(100 / (100 - self.percent) - 1e-9)


@dataclass(frozen=True)
class Judged:
    """An objective with what came of it."""

    objective: Objective
    verdict: Verdict
    good: int
    total: int
    share: Interval
    """Of the true share of good requests."""

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies on the verdict's side: another run would hardly say otherwise."""
        wanted = self.objective.percent / 100
        return self.share.low >= wanted if self.verdict is Verdict.PASS else self.share.high < wanted

    def __str__(self) -> str:
        wanted = self.objective
        if not self.total:
            return f"{wanted}: {self.verdict}: no request has this time{self._doubt()}"
        return (
            f"{wanted}: {self.verdict}: {100 * self.good / self.total:.2f} % of requests ({self.good} of {self.total}) "
            f"were within {wanted.limit}, wanted {wanted.percent:g} % (95 % interval of the share: "
            f"{100 * self.share.low:.2f} to {100 * self.share.high:.2f} %){self._doubt()}"
        )

    def _doubt(self) -> str:
        if self.verdict is Verdict.UNDECIDED:
            return f"; too few to tell: at least {self.objective.least_samples} requests are needed"
        return "" if self.is_shown else "; so close that another run may say otherwise: measure longer"


def parse_objective(text: str) -> Objective:
    """Raises LoadError that names the allowed form."""
    match = re.fullmatch(r"([a-z0-9]+)=([^@]+)@(\d+(?:\.\d+)?)", text.strip())
    if not match or match[1] not in set(Latency):
        raise LoadError(f"--objective {text!r}: {_FORM}")
    percent = float(match[3])
    if not 0 < percent < 100:
        raise LoadError(f"--objective {text!r}: the percent lies between 0 and 100, both excluded")
    return Objective(Latency(match[1]), seconds(match[2], f"--objective {text!r}:"), percent)


def judge(objective: Objective, samples: Sequence[Sample]) -> Judged:
    """All requests count; those without an answer are bad ones."""
    values = latencies(samples, objective.latency)
    good, share = share_within(values, objective.limit_seconds)
    total = len(values)
    if total < objective.least_samples:
        verdict = Verdict.UNDECIDED
    else:
        verdict = Verdict.PASS if good >= total * objective.percent / 100 - 1e-9 else Verdict.FAIL
    return Judged(objective, verdict, good, total, share)
