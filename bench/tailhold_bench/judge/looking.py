"""Looks at growing counts as the operator does, at many runs at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailhold_bench.judge.flows import Latencies
from tailhold_operator.judge.comparison import LEAST_CELLS, Limit, weigh
from tailhold_operator.judge.counts import Counts
from tailhold_operator.judge.evidence import Side, above, not_worse, worse

Found: TypeAlias = NDArray[np.int64]
"""Of each run the candidate's requests at the look that found it; -1 where none did."""


@dataclass(frozen=True)
class Seen:
    """Both sides of many runs, in cells."""

    candidate: Counts
    stable: Counts | None

    @property
    def sides(self) -> tuple[Side, Side]:
        """Whole counts; a stable side without a request where there is none."""
        candidate = _side(self.candidate)
        return candidate, Side(0 * candidate.bad, 0 * candidate.total) if self.stable is None else _side(self.stable)

    def until(self, cells: int, runs: NDArray[np.int64]) -> "Seen":
        """Some of the runs, so far."""
        return Seen(
            _some(self.candidate, cells, runs), None if self.stable is None else _some(self.stable, cells, runs)
        )


def cells(latencies: Latencies, limit: float, lower: tuple[float, ...], size: int) -> Counts:
    """Of runs x requests, counts in cells of so many requests, of the share beyond each of the thresholds."""
    runs, requests = latencies.shape
    whole = latencies[:, : requests // size * size].reshape(runs, -1, size)
    beyond = [(whole > each).sum(axis=2).astype(np.float64) for each in (limit, *lower)]
    return Counts(np.full(beyond[0].shape, float(size)), beyond[0], tuple(beyond[1:]))


@dataclass(frozen=True)
class Question:
    """What is looked for in each look."""

    shown: Callable[[Seen, Limit], NDArray[np.bool_]]
    hopeful: Callable[[Seen, Limit], NDArray[np.bool_]]
    """Whether the counts would be enough if no request depended on another. To divide by a design effect only takes
    from the evidence (a mean of powers is below the power of the mean), so the rest need no closer look."""


def first(seen: Seen, limit: Limit, question: Question, every: int = 1) -> Found:
    """Looks after each cell, or some, until it is shown."""
    runs, length = seen.candidate.bad.shape
    found = np.full(runs, -1, dtype=np.int64)
    open_ = np.arange(runs)
    for cell in range(LEAST_CELLS, length + 1, every):
        if not len(open_):
            break
        hopeful = open_[question.hopeful(seen.until(cell, open_), limit)]
        if len(hopeful):
            sure = hopeful[question.shown(seen.until(cell, hopeful), limit)]
            found[sure] = seen.candidate.total[sure, :cell].sum(axis=1)
            open_ = np.setdiff1d(open_, sure, assume_unique=True)
    return found


def _beyond(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    evidence = weigh(seen.candidate, seen.stable, limit)
    return np.asarray(evidence.beyond >= evidence.to_fail(limit))


def _may_be_beyond(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    return np.asarray(above(_side(seen.candidate), limit.allowed) >= log(1 / limit.fail_level))


def _fails(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    """The rows of the truth table that end in Fail."""
    evidence = weigh(seen.candidate, seen.stable, limit)
    kept = seen.sides[1].share <= limit.allowed
    return np.asarray(
        (evidence.worse >= evidence.to_fail(limit)) | ((evidence.beyond >= evidence.to_fail(limit)) & kept)
    )


def _may_fail(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    best = np.maximum(above(seen.sides[0], limit.allowed), worse(*seen.sides, limit.allowed, limit.margin))
    return np.asarray(best >= log(2 / limit.fail_level))


def _passes(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    evidence = weigh(seen.candidate, seen.stable, limit)
    return np.asarray((evidence.not_worse >= evidence.to_pass(limit)) & (evidence.beyond < evidence.to_fail(limit)))


def _may_pass(seen: Seen, limit: Limit) -> NDArray[np.bool_]:
    return np.asarray(not_worse(*seen.sides, limit.allowed, limit.margin) >= log(1 / limit.pass_level))


BEYOND = Question(_beyond, _may_be_beyond)
FAILS = Question(_fails, _may_fail)
PASSES = Question(_passes, _may_pass)


def _some(counts: Counts, cells: int, runs: NDArray[np.int64]) -> Counts:
    return Counts(
        counts.total[runs, :cells], counts.bad[runs, :cells], tuple(each[runs, :cells] for each in counts.slow)
    )


def _side(counts: Counts) -> Side:
    return Side(counts.all_bad, counts.all_total)
