"""How many requests a verdict will take, and when it can come at the earliest."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log

from tailhold_operator.judge.clustering import clustering
from tailhold_operator.judge.comparison import LEAST_REQUESTS, Limit
from tailhold_operator.judge.counts import Counts, Side, side_of
from tailhold_operator.judge.evidence import below, not_worse

MOST = 1 << 24
"""Requests; what needs more is said to need more than that."""


@dataclass(frozen=True)
class Prospect:
    """Of a candidate that goes on as it did."""

    needed: int | None
    """Requests of the candidate until it is shown not to be worse; None beyond sixteen millions, or where its share
    is too high for that."""
    share: float
    """Bad requests that both sides are taken to have."""
    clustering: float
    """So many requests count as one."""


def prospect(candidate: Counts, stable: Counts | None, limit: Limit) -> Prospect:
    """Sizes the sample by what was seen so far, half a bad request added so that none is not taken for never."""
    seen, doubt = side_of(candidate), clustering(candidate)
    if stable is None:
        share = (seen.bad + 0.5) / (seen.total + 0.5 / limit.allowed)
        return Prospect(_first(lambda n: _alone(n / doubt, share, limit), limit), share, doubt)
    beside, doubt = side_of(stable), max(doubt, clustering(stable))
    share = (seen.bad + beside.bad + 0.5) / (seen.total + beside.total + 0.5 / limit.allowed)
    ratio = beside.total / max(seen.total, 1.0) or 1.0
    return Prospect(_first(lambda n: _beside(n / doubt, ratio, share, limit), limit), share, doubt)


def seconds_left(needed: int | None, seen: float, rate: float) -> float:
    """Until the candidate has as many requests as it needs, at so many a second."""
    if needed is None or rate <= 0:
        return inf
    return max(0.0, needed - seen) / rate


def _alone(total: float, share: float, limit: Limit) -> float:
    return below(Side(total * share, total), limit.allowed + limit.margin)


def _beside(total: float, ratio: float, share: float, limit: Limit) -> float:
    candidate = Side(total * share, total)
    return not_worse(candidate, Side(candidate.bad * ratio, candidate.total * ratio), limit.allowed, limit.margin)


def _first(evidence: Callable[[float], float], limit: Limit) -> int | None:
    """The fewest requests at which the evidence is enough; it grows with them or never is."""
    enough, low, high = log(1 / limit.pass_level), LEAST_REQUESTS // 2, LEAST_REQUESTS
    while evidence(high) < enough:
        low, high = high, high * 2
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if evidence(middle) >= enough else (middle, high)
    return high
