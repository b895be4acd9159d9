"""Evidence that may be looked at after every request: logarithms of e-values.

An e-value is what a bet against a hypothesis has made of 1: if the hypothesis holds it is 20 or more at any time
with a probability of at most 1 in 20, however often one looks (Ville). The bets here are mixtures of likelihood
ratios (Robbins 1970) against the end of a hypothesis, and, where it leaves a share open, against the likeliest
point of it (universal inference: Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020). Counts are of independent
requests, or divided by their design effect (`clustering`), and need not be whole numbers.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp, inf, log, log1p
from typing import NamedTuple

from tailhold_operator.judge.counts import Side

_MOST_SHARE = 0.98
_HALVINGS = 40


class _Stake(NamedTuple):
    """A part of a bet, on one share."""

    weight: float
    """Of the whole stake."""
    bad: float
    """What a bad request adds to the logarithm of the stake."""
    good: float


def above(side: Side, allowed: float) -> float:
    """Against "at most `allowed` of the requests are bad"."""
    return _mixture(side, _stakes_above(allowed))


def below(side: Side, allowed: float) -> float:
    """Against "at least `allowed` of the requests are bad"."""
    return _mixture(side, _stakes_below(allowed))


def not_worse(candidate: Side, stable: Side, allowed: float, margin: float) -> float:
    """Against "the candidate's share is at least the stable side's and `margin`": a bet on both being alike."""
    if candidate.share >= stable.share + margin:
        return -inf
    both = Side(candidate.bad + stable.bad, candidate.total + stable.total)
    return _mixture(both, _likelihoods(allowed)) - _likeliest_apart(candidate, stable, margin)


def worse(candidate: Side, stable: Side, allowed: float, margin: float) -> float:
    """Against "the candidate's share is at most the stable side's and `margin`": a bet on any two shares."""
    if candidate.share <= stable.share + margin:
        return -inf
    bet = sum(_mixture(side, _likelihoods(allowed)) for side in (candidate, stable))
    return bet - _likeliest_apart(candidate, stable, margin)


def _mixture(side: Side, stakes: Sequence[_Stake]) -> float:
    good = side.total - side.bad
    logs = [side.bad * stake.bad + good * stake.good for stake in stakes]
    highest = max(logs)
    return highest + log(sum(stake.weight * exp(each - highest) for stake, each in zip(stakes, logs, strict=True)))


@lru_cache(maxsize=64)
def _stakes_above(allowed: float) -> tuple[_Stake, ...]:
    """On 1.5 to 80 times the allowed share, more on the low ones."""
    times = _spaced(1.5, 80, 24)
    most = max(_MOST_SHARE, (1 + allowed) / 2)
    return _against(allowed, [min(allowed * each, most) for each in times], [1 / each for each in times])


@lru_cache(maxsize=64)
def _stakes_below(allowed: float) -> tuple[_Stake, ...]:
    times = _spaced(0.02, 0.9, 16)
    return _against(allowed, [allowed * each for each in times], [1.0] * len(times))


def _against(allowed: float, shares: Sequence[float], weights: Sequence[float]) -> tuple[_Stake, ...]:
    return tuple(
        _Stake(weight / sum(weights), log(share / allowed), log1p(-share) - log1p(-allowed))
        for share, weight in zip(shares, weights, strict=True)
    )


@lru_cache(maxsize=64)
def _likelihoods(allowed: float) -> tuple[_Stake, ...]:
    """Fine, because the stable side may have many more requests, and a bet that misses its share pays for each."""
    shares = [min(allowed * each, _MOST_SHARE) for each in _spaced(0.02, 40, 64)]
    return tuple(_Stake(1 / len(shares), log(share), log1p(-share)) for share in shares)


def _spaced(low: float, high: float, count: int) -> list[float]:
    """From low to high in equal ratios."""
    return [low * (high / low) ** (number / (count - 1)) for number in range(count)]


def _likeliest_apart(candidate: Side, stable: Side, margin: float) -> float:
    """Log likelihood of the likeliest shares that are exactly `margin` apart; it is concave, so halving finds it."""
    share = _zero(lambda each: _slope(candidate, each + margin) + _slope(stable, each), 1e-12, 1 - margin - 1e-12)
    return _log_likelihood(candidate, share + margin) + _log_likelihood(stable, share)


def _zero(falling: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def _log_likelihood(side: Side, share: float) -> float:
    return side.bad * log(share) + (side.total - side.bad) * log1p(-share)


def _slope(side: Side, share: float) -> float:
    return side.bad / share - (side.total - side.bad) / (1 - share)
