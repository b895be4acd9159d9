"""Evidence that may be looked at after every request: logarithms of e-values.

An e-value is what a bet against a hypothesis has made of 1: if the hypothesis holds it is 20 or more at any time
with a probability of at most 1 in 20, however often one looks (Ville). The bets here are mixtures of likelihood
ratios (Robbins 1970) against the end of a hypothesis, and, where it leaves a share open, against the likeliest
point of it (universal inference: Wasserman, Ramdas and Balakrishnan, PNAS 117, 2020). Counts are of independent
requests, or divided by their design effect (`clustering`), and need not be whole numbers.
"""

from typing import NamedTuple

import numpy as np

from tailhold_operator.judge.counts import Floats

_ABOVE = np.geomspace(1.5, 80, 24)
"""Times the allowed share that a bet on "more" bets on, the low ones with more of the stake."""
_BELOW = np.geomspace(0.02, 0.9, 16)
_COMMON = np.geomspace(0.02, 40, 64)
"""Fine, because the stable side may have many more requests, and a bet that misses its share pays for each of them."""
_MOST_SHARE = 0.98
_HALVINGS = 40


class Side(NamedTuple):
    """Requests of one side; arrays of the same shape."""

    bad: Floats
    total: Floats

    def divided(self, effect: Floats) -> "Side":
        """As so many independent requests."""
        return Side(self.bad / effect, self.total / effect)

    @property
    def share(self) -> Floats:
        """0 where there is none."""
        return np.asarray(self.bad / np.maximum(self.total, 1e-9))


def above(side: Side, allowed: float) -> Floats:
    """Against "at most `allowed` of the requests are bad"."""
    shares = np.minimum(allowed * _ABOVE, max(_MOST_SHARE, (1 + allowed) / 2))
    return _mixture(_likelihood(side, shares), 1 / _ABOVE) - _log_likelihood(side, allowed)


def below(side: Side, allowed: float) -> Floats:
    """Against "at least `allowed` of the requests are bad"."""
    return _mixture(_likelihood(side, allowed * _BELOW), np.ones(len(_BELOW))) - _log_likelihood(side, allowed)


def not_worse(candidate: Side, stable: Side, allowed: float, margin: float) -> Floats:
    """Against "the candidate's share is at least the stable side's and `margin`": a bet on both being alike."""
    both = Side(candidate.bad + stable.bad, candidate.total + stable.total)
    shares = np.minimum(allowed * _COMMON, _MOST_SHARE)
    bet = _mixture(_likelihood(both, shares), np.ones(len(_COMMON)))
    return np.where(candidate.share < stable.share + margin, bet - _likeliest_apart(candidate, stable, margin), -np.inf)


def worse(candidate: Side, stable: Side, allowed: float, margin: float) -> Floats:
    """Against "the candidate's share is at most the stable side's and `margin`": a bet on any two shares."""
    shares = np.minimum(allowed * _COMMON, _MOST_SHARE)
    bet = sum(_mixture(_likelihood(side, shares), np.ones(len(shares))) for side in (candidate, stable))
    return np.where(candidate.share > stable.share + margin, bet - _likeliest_apart(candidate, stable, margin), -np.inf)


def _log_likelihood(side: Side, share: Floats | float) -> Floats:
    return np.asarray(side.bad * np.log(share) + (side.total - side.bad) * np.log1p(-np.asarray(share)))


def _likelihood(side: Side, shares: Floats) -> Floats:
    """Of each share, along a new last axis."""
    return _log_likelihood(Side(side.bad[..., None], side.total[..., None]), shares)


def _mixture(logs: Floats, weights: Floats) -> Floats:
    highest = logs.max(axis=-1, keepdims=True)
    mean = (weights / weights.sum() * np.exp(logs - highest)).sum(axis=-1)
    return np.asarray(highest[..., 0] + np.log(mean))


def _likeliest_apart(candidate: Side, stable: Side, margin: float) -> Floats:
    """Log likelihood of the likeliest shares that are exactly `margin` apart; it is concave, so halving finds it."""
    low = np.full(np.shape(candidate.bad), 1e-12)
    high = np.full(np.shape(candidate.bad), 1 - margin - 1e-12)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rises = _slope(candidate, middle + margin) + _slope(stable, middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    middle = (low + high) / 2
    return _log_likelihood(candidate, middle + margin) + _log_likelihood(stable, middle)


def _slope(side: Side, share: Floats) -> Floats:
    return np.asarray(side.bad / share - (side.total - side.bad) / (1 - share))
