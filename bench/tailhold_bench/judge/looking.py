"""Looks at growing counts as the operator does, after each cell, until something is shown."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import log
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailhold_bench.judge.flows import Latencies
from tailhold_operator.judge.comparison import LEAST_CELLS, Limit, Outcome, outcome, weigh
from tailhold_operator.judge.counts import Counts, Side
from tailhold_operator.judge.evidence import above, not_worse, worse

Found: TypeAlias = NDArray[np.int64]
"""Of each run the candidate's requests at the look that found it; -1 where none did."""


@dataclass(frozen=True)
class Look:
    """What is there to be seen after so many cells of one run."""

    candidate: Counts
    stable: Counts | None
    seen: Side
    beside: Side
    """Without a request where there is no stable side."""


@dataclass(frozen=True)
class Question:
    """What is looked for in each look."""

    shown: Callable[[Look, Limit], bool]
    hopeful: Callable[[Look, Limit], bool]
    """Whether the counts would be enough if no request depended on another. To divide by a design effect only takes
    from the evidence (a mean of powers is below the power of the mean), so the rest need no closer look."""


def cells(latencies: Latencies, limit: float, lower: tuple[float, ...], size: int) -> list[Counts]:
    """Of each run, counts in cells of so many requests, of those beyond each of the thresholds."""
    runs, requests = latencies.shape
    whole = latencies[:, : requests // size * size].reshape(runs, -1, size)
    beyond = [(whole > each).sum(axis=2).tolist() for each in (limit, *lower)]
    total = [float(size)] * whole.shape[1]
    return [Counts(total, bad, slow) for bad, *slow in zip(*beyond, strict=True)]


def first(
    candidates: Sequence[Counts], stables: Sequence[Counts] | None, limit: Limit, question: Question, every: int = 1
) -> Found:
    """For each run, looks after each cell, or some, until it is shown."""
    beside: Iterable[Counts | None] = repeat(None, len(candidates)) if stables is None else stables
    pairs = zip(candidates, beside, strict=True)
    return np.array([_first(looks(*pair, every), limit, question) for pair in pairs], dtype=np.int64)


def looks(candidate: Counts, stable: Counts | None, every: int = 1) -> Iterator[Look]:
    """One after the other."""
    sums = list(zip(accumulate(candidate.bad), accumulate(candidate.total), strict=True))
    beside = list(zip(accumulate(stable.bad), accumulate(stable.total), strict=True)) if stable else None
    for number in range(LEAST_CELLS, len(sums) + 1, every):
        yield Look(
            _until(candidate, number),
            _until(stable, number) if stable else None,
            Side(*sums[number - 1]),
            Side(*beside[number - 1]) if beside else Side(0, 0),
        )


def _first(seen: Iterator[Look], limit: Limit, question: Question) -> int:
    found = (look.seen.total for look in seen if question.hopeful(look, limit) and question.shown(look, limit))
    return int(next(found, -1))


def _outcome(look: Look, limit: Limit) -> Outcome:
    evidence = weigh(look.candidate, look.stable, limit)
    return outcome(evidence, limit, stable_is_beyond=look.beside.share > limit.allowed)


def _may_be_beyond(look: Look, limit: Limit) -> bool:
    return above(look.seen, limit.allowed) >= log(1 / limit.fail_level)


def _may_fail(look: Look, limit: Limit) -> bool:
    if look.stable is None:
        return _may_be_beyond(look, limit)
    enough = log(2 / limit.fail_level)
    sides = look.seen, look.beside
    return above(look.seen, limit.allowed) >= enough or worse(*sides, limit.allowed, limit.margin) >= enough


def _may_pass(look: Look, limit: Limit) -> bool:
    return not_worse(look.seen, look.beside, limit.allowed, limit.margin) >= log(1 / limit.pass_level)


SINGLY = Question(_may_be_beyond, _may_be_beyond)
"""Every request is news, as if no request depended on another: what the judge is compared to."""
FAILS = Question(lambda look, limit: _outcome(look, limit) is Outcome.FAIL, _may_fail)
PASSES = Question(lambda look, limit: _outcome(look, limit) is Outcome.PASS, _may_pass)


def _until(counts: Counts, cells: int) -> Counts:
    return Counts(counts.total[:cells], counts.bad[:cells], [each[:cells] for each in counts.slow])
