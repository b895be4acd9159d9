"""Whether requests kept the objectives, counted so that counters of pods and of minutes add up.

Each objective is a histogram with a bucket edge exactly at its threshold: what is beyond it is known, not estimated.
The edges below it show how slow requests come together before any is bad.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import NamedTuple

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from tailhold_api import names
from tailhold_api.slo import Objective, ObjectiveMetric
from tailhold_server.stages import Marks

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
"""Bucket edges of each objective, as shares of its threshold."""

_GOOD, _GIVEN_UP = "ok", "client_closed"
_BAD = ("failed", "shed")
"""Outcomes as `telemetry.OUTCOMES` has them, with `shed` for what had no place: a client that is beyond its own limit
is turned away as well, and that is its own doing."""


class Taken(NamedTuple):
    """By one metric, so far."""

    seconds: float
    """They only grow while a request runs."""
    settled: bool
    """Whether they grow no more."""


@dataclass(eq=False)
class Case:
    """A request that has not ended."""

    began: float
    marks: Marks | None = None
    """None before it is admitted."""

    def taken(self, metric: ObjectiveMetric, now: float) -> Taken:
        """What it took so far."""
        marks = self.marks or Marks(self.began)
        if metric is ObjectiveMetric.INTER_TOKEN:
            ended = marks.finished is not None
            waits = 0.0 if ended or marks.awaited is None else now - marks.awaited
            return Taken(max(marks.longest_gap, waits), ended)
        ends = {
            ObjectiveMetric.TIME_TO_FIRST_TOKEN: marks.first_token,
            ObjectiveMetric.END_TO_END: marks.finished,
            ObjectiveMetric.RETRIEVAL: marks.found,
        }
        end = ends[metric]
        return Taken((now if end is None else end) - self.began, end is not None)


def measured(taken: Taken, outcome: str, threshold_seconds: float) -> float | None:
    """Seconds to be counted for a request that ended so, infinite for one that is bad whatever it took.

    None where it is not counted: what is the client's fault, and what was given up before it could be called late.
    """
    if outcome in _BAD:
        return inf
    if outcome == _GOOD or (outcome == _GIVEN_UP and taken.settled):
        return taken.seconds
    return inf if taken.seconds > threshold_seconds else None


@dataclass
class _Tally:
    edges: tuple[float, ...]
    """Seconds, the last one infinite."""
    counts: list[int] = field(default_factory=list)
    total_seconds: float = 0.0

    def add(self, taken: float) -> None:
        self.counts[next(number for number, edge in enumerate(self.edges) if taken <= edge)] += 1
        self.total_seconds += 0 if taken == inf else taken


class Counted(Collector):
    """Counts of one server. Event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tallies: dict[str, tuple[Objective, _Tally]] = {}
        """By the objective's name: another `percent` is the same counter."""
        self._open: dict[Case, None] = {}

    def keep(self, objectives: Sequence[Objective]) -> None:
        """Count these from now on; those that were counted before go on."""
        before = {name: tally for name, (_, tally) in self._tallies.items()}
        self._tallies = {each.name: (each, before.get(each.name) or _tally(each)) for each in objectives}

    @property
    def kept(self) -> tuple[Objective, ...]:
        """What is counted."""
        return tuple(objective for objective, _ in self._tallies.values())

    def begin(self) -> Case:
        """A request has arrived."""
        case = Case(self._clock())
        self._open[case] = None
        return case

    def end(self, case: Case, outcome: str) -> None:
        """It ended so; twice does no harm."""
        if case not in self._open:
            return
        del self._open[case]
        for objective, tally in self._tallies.values():
            taken = measured(case.taken(objective.metric, self._clock()), outcome, objective.threshold_seconds)
            if taken is not None:
                tally.add(taken)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All objectives. A request that runs and is late already counts as late: it will never be anything else."""
        family = HistogramMetricFamily(
            names.METRIC_OBJECTIVE_SECONDS,
            "What requests took by each objective; failed, shed and overdue ones are beyond all edges.",
            labels=["objective"],
        )
        for objective, tally in self._tallies.values():
            cumulative = list(accumulate(tally.counts))
            cumulative[-1] += self._overdue(objective)
            edges = ("+Inf" if edge == inf else repr(edge) for edge in tally.edges)
            family.add_metric([objective.name], list(zip(edges, cumulative, strict=True)), tally.total_seconds)
        yield family

    def _overdue(self, objective: Objective) -> int:
        now = self._clock()
        return sum(case.taken(objective.metric, now).seconds > objective.threshold_seconds for case in self._open)


def _tally(objective: Objective) -> _Tally:
    edges = (*(round(objective.threshold_seconds * share, 6) for share in EDGES), inf)
    return _Tally(edges, [0] * len(edges))
