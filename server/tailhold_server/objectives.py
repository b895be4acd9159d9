"""Whether requests kept the objectives, counted so that counters of pods and of minutes add up.

Each objective is a histogram with a bucket edge exactly at its threshold: what is beyond it is known, not estimated.
The edges below it show how slow requests come together before any is bad.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
MOST_REVISIONS = 4
"""Revisions that a server has counters of: the one that was heard of longest ago goes."""

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
    revision: str = ""
    """Whose answer it is to be."""
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
    """Counts of one server, by the revision that answers: its own, and those that it hands requests over to. Event loop
    only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._objectives: dict[str, Objective] = {}
        """By name: another `percent` is the same counter."""
        self._tallies: dict[str, dict[str, _Tally]] = {}
        """By revision, the one that was heard of last at the end, and by the objective's name."""
        self._open: dict[Case, None] = {}

    def keep(self, objectives: Sequence[Objective]) -> None:
        """Count these from now on; those that were counted before go on."""
        self._objectives = {each.name: each for each in objectives}
        self._tallies = {revision: self._kept(tallies) for revision, tallies in self._tallies.items()}

    def _kept(self, before: Mapping[str, _Tally]) -> dict[str, _Tally]:
        return {name: before.get(name) or _tally(each) for name, each in self._objectives.items()}

    @property
    def kept(self) -> tuple[Objective, ...]:
        """What is counted."""
        return tuple(self._objectives.values())

    def know(self, revision: str) -> None:
        """There may be requests of this revision: its counters are there, with 0, before the first one. Only the last
        few revisions have any."""
        self._tallies[revision] = self._tallies.pop(revision, None) or self._kept({})
        while len(self._tallies) > MOST_REVISIONS:
            del self._tallies[next(iter(self._tallies))]

    def begin(self, revision: str) -> Case:
        """A request has arrived that this revision answers."""
        case = Case(self._clock(), revision)
        self._open[case] = None
        self.know(revision)
        return case

    def give(self, case: Case, revision: str) -> None:
        """Another revision answers it. Only before anything can be counted."""
        case.revision = revision
        self.know(revision)

    def end(self, case: Case, outcome: str) -> None:
        """It ended so; twice does no harm."""
        if case not in self._open:
            return
        del self._open[case]
        for name, tally in self._tallies.get(case.revision, {}).items():
            objective = self._objectives[name]
            taken = measured(case.taken(objective.metric, self._clock()), outcome, objective.threshold_seconds)
            if taken is not None:
                tally.add(taken)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """All objectives. A request that runs and is late already counts as late: it will never be anything else."""
        family = HistogramMetricFamily(
            names.METRIC_OBJECTIVE_SECONDS,
            "What requests took by each objective and the revision that answered; failed, shed and overdue ones are"
            " beyond all edges.",
            labels=["objective", "revision"],
        )
        for revision, tallies in self._tallies.items():
            for name, tally in tallies.items():
                cumulative = list(accumulate(tally.counts))
                cumulative[-1] += self._overdue(revision, self._objectives[name])
                edges = ("+Inf" if edge == inf else repr(edge) for edge in tally.edges)
                buckets = list(zip(edges, cumulative, strict=True))
                family.add_metric([name, revision], buckets, tally.total_seconds)
        yield family

    def _overdue(self, revision: str, objective: Objective) -> int:
        now = self._clock()
        late = (case.taken(objective.metric, now).seconds > objective.threshold_seconds for case in self._of(revision))
        return sum(late)

    def _of(self, revision: str) -> Iterator[Case]:
        return (case for case in self._open if case.revision == revision)


def _tally(objective: Objective) -> _Tally:
    edges = (*(round(objective.threshold_seconds * share, 6) for share in EDGES), inf)
    return _Tally(edges, [0] * len(edges))
