"""Percentiles over all requests, those without an answer counted as slower than any, and how sure they are.

All values are kept and percentiles are exact, by nearest rank: no sketch, no bound of error.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tailhold_bench.load.samples import Outcome, Sample

Values = NDArray[np.float64]
_RESAMPLED_VALUES = 10_000_000
"""Bounds the time of a bootstrap: the more samples, the fewer repetitions, at least 200."""


class Latency(StrEnum):
    """What is measured of a request, from the time it was due. The gap between messages is the one exception."""

    TTFT = "ttft"
    """To the first text."""
    E2E = "e2e"
    """To the last byte of the answer."""
    TTFB = "ttfb"
    """To the first byte of the response."""
    GAP = "gap"
    """The longest wait between two messages with text; answers of one message have none."""
    TPOT = "tpot"
    """Mean time for each token after the first, where the server counts tokens."""


@dataclass(frozen=True)
class Interval:
    """In which a figure lies with 95 % confidence."""

    low: float
    high: float


def latency(sample: Sample, kind: Latency) -> float:
    """Seconds; infinite for a request without an answer, nan where an answer has no such time."""
    if sample.outcome is not Outcome.OK or sample.ended is None or sample.first_token is None:
        return math.inf
    last = sample.last_token or sample.first_token
    match kind:
        case Latency.TTFT:
            return sample.first_token - sample.due
        case Latency.E2E:
            return sample.ended - sample.due
        case Latency.TTFB:
            return (sample.first_byte or sample.first_token) - sample.due
        case Latency.GAP:
            return sample.worst_gap if sample.messages > 1 else math.nan
        case Latency.TPOT:
            tokens = sample.output_tokens or 0
            return (last - sample.first_token) / (tokens - 1) if tokens > 1 else math.nan


def latencies(samples: Iterable[Sample], kind: Latency) -> Values:
    """In the order of the samples, without those that have no such time."""
    found = np.array([latency(sample, kind) for sample in samples], np.float64)
    known: Values = found[~np.isnan(found)]
    return known


def percentile(values: Values, percent: float) -> float:
    """The smallest value that `percent` of all do not exceed; nan of nothing, infinite where too few were answered."""
    if len(values) == 0:
        return math.nan
    rank = _rank(len(values), percent)
    return float(np.partition(values, rank)[rank])


def _rank(count: int, percent: float) -> int:
    return max(0, min(count, math.ceil(count * percent / 100 - 1e-9)) - 1)


def interval(values: Values, percent: float, seed: int = 0) -> Interval:
    """Of a percentile, by a moving-block bootstrap: neighbours in a queue are alike, so blocks are drawn."""
    return intervals(values, (percent,), seed)[0]


def intervals(values: Values, percents: Sequence[float], seed: int = 0) -> list[Interval]:
    """Of several, from the same draws."""
    drawn = _resampled(values, percents, np.random.default_rng(seed))
    return [_spread(drawn[:, place]) for place in range(len(percents))]


def ratio(ours: Values, theirs: Values, percent: float, seed: int = 0) -> tuple[float, Interval]:
    """Of two runs' percentiles, with the interval of a bootstrap of both; nan where either has none."""
    random = np.random.default_rng(seed)
    drawn, others = (_resampled(values, (percent,), random)[:, 0] for values in (ours, theirs))
    count = min(len(drawn), len(others))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = percentile(ours, percent) / np.float64(percentile(theirs, percent))
        return float(found), _spread(drawn[:count] / others[:count])


def _resampled(values: Values, percents: Sequence[float], random: np.random.Generator) -> Values:
    """A row for each draw, a column for each percentile."""
    count = len(values)
    if count == 0:
        return np.empty((0, len(percents)))
    length = block_length(count)
    blocks = math.ceil(count / length)
    ranks = [_rank(count, percent) for percent in percents]
    found = np.empty((max(200, min(1000, _RESAMPLED_VALUES // count)), len(percents)))
    offsets = np.arange(length)
    for place in range(len(found)):
        starts = random.integers(0, count - length + 1, blocks)
        drawn = values[(starts[:, None] + offsets).ravel()[:count]]
        drawn.partition(ranks)
        found[place] = drawn[ranks]
    return found


def block_length(count: int) -> int:
    """Neighbours drawn together: the square root of all."""
    return max(1, math.isqrt(count))


def _spread(drawn: Values) -> Interval:
    known = np.sort(drawn[~np.isnan(drawn)])
    if len(known) == 0:
        return Interval(math.nan, math.nan)
    return Interval(float(known[_rank(len(known), 2.5)]), float(known[_rank(len(known), 97.5)]))


def share_within(values: Values, seconds: float) -> tuple[int, Interval]:
    """How many values are at most `seconds`, and the interval of their share.

    Wilson's, for as many independent requests as the blocks' spread says that these are worth.
    """
    good = values <= seconds
    count = len(good)
    if count == 0:
        return 0, Interval(0.0, 1.0)
    share = float(good.mean())
    worth = count / _inflation(good, share)
    z = 1.96
    middle = (share + z**2 / (2 * worth)) / (1 + z**2 / worth)
    half = z * math.sqrt(share * (1 - share) / worth + z**2 / (4 * worth**2)) / (1 + z**2 / worth)
    return int(good.sum()), Interval(max(0.0, middle - half), min(1.0, middle + half))


def _inflation(good: NDArray[np.bool_], share: float) -> float:
    """By how much the blocks' means vary more than those of independent requests would; at least 1."""
    length = block_length(len(good))
    blocks = len(good) // length
    if blocks < 5 or share in (0.0, 1.0):
        return 1.0
    means = good[: blocks * length].reshape(blocks, length).mean(axis=1)
    return max(1.0, float(means.var(ddof=1)) * length / (share * (1 - share)))


def curve(values: Values, ticks_per_half: int = 5) -> list[tuple[float, float]]:
    """Percent and value, denser towards the tail, as HdrHistogram prints them: the distance to 100 % is halved."""
    count = len(values)
    ordered = np.sort(values)
    percents, percent, distance = [0.0], 0.0, 100.0
    while count and 100 - percent > 100 / count:
        for _ in range(ticks_per_half):
            percent += distance / 2 / ticks_per_half
            percents.append(percent)
        distance /= 2
    return [(percent, float(ordered[_rank(count, percent)])) for percent in [*percents, 100.0]] if count else []


def mean_in_flight(samples: Sequence[Sample]) -> float:
    """Requests under way on average between the first request and the last answer."""
    spans = [(s.begun, s.ended) for s in samples if s.begun is not None and s.ended is not None]
    if not spans:
        return 0.0
    passed = max(ended for _, ended in spans) - min(begun for begun, _ in spans)
    return sum(ended - begun for begun, ended in spans) / passed if passed > 0 else 0.0


def peak_in_flight(samples: Sequence[Sample]) -> int:
    """The most requests that were under way at once."""
    spans = [(s.begun, s.ended) for s in samples if s.begun is not None and s.ended is not None]
    changes = sorted([(ended, -1) for _, ended in spans] + [(begun, 1) for begun, _ in spans])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def time_in_system(in_flight: float, rate: float) -> float:
    """Little's law: seconds that a request stays on average where `in_flight` are at `rate` a second."""
    return in_flight / rate
