"""How many requests count as one, because slow requests come together.

In a queue one long wait makes the next ones long as well. The design effect is the variance of bad requests in
blocks of time over what independent requests would have; requests and bad ones divided by it can be used as if
they were independent (J. N. K. Rao and A. J. Scott, "A simple method for the analysis of clustered binary data",
Biometrics 48, 1992).
"""

from collections.abc import Sequence
from math import sqrt

from tailhold_operator.judge.counts import Counts

LEAST_BLOCKS = 4
"""Blocks grow by doubling until there would be fewer."""
_NOTICED = 2.5
"""Standard deviations above 1 before a design effect is believed: independent requests are not made to look like
clusters by chance."""
_FEW_BLOCKS = 4.0
"""A variance out of few blocks is more likely too small than too large: it is multiplied by 1 + this / (blocks - 1)."""
ENOUGH_SLOW = 50
"""Requests beyond a threshold before it tells how they cluster."""


def design_effect(bad: Sequence[float], total: Sequence[float]) -> float:
    """At least 1; the largest over blocks of 1, 2, 4, ... cells, which covers waits that last longer than a cell."""
    effect = 1.0
    while len(bad) >= LEAST_BLOCKS:
        effect = max(effect, _of_blocks(bad, total))
        bad, total = _paired(bad), _paired(total)
    return effect


def clustering(counts: Counts) -> float:
    """The design effect at the highest threshold that enough requests are beyond, the objective's own first.

    Before a side has had its first long wait its bad requests cannot tell that they come together. In queues the
    design effect hardly depends on the threshold: see `python -m tailhold_bench.judge clusters`.
    """
    own = design_effect(counts.bad, counts.total)
    if not counts.slow or sum(counts.bad) >= ENOUGH_SLOW:
        return own
    enough = (slow for slow in counts.slow if sum(slow) >= ENOUGH_SLOW)
    return max(own, design_effect(next(enough, counts.slow[-1]), counts.total))


def _paired(cells: Sequence[float]) -> list[float]:
    """Sums of two neighbours each; an oldest one without a neighbour is left out."""
    newest = cells[len(cells) % 2 :]
    return [one + other for one, other in zip(newest[::2], newest[1::2], strict=True)]


def _of_blocks(bad: Sequence[float], total: Sequence[float]) -> float:
    blocks = len(bad)
    share = sum(bad) / max(sum(total), 1.0)
    expected = sum(total) * share * (1 - share)
    if expected <= 0:
        return 1.0
    spread = sum((found - among * share) ** 2 for found, among in zip(bad, total, strict=True))
    effect = spread / expected * blocks / (blocks - 1)
    noticed = effect > 1 + _NOTICED * sqrt(2 / (blocks - 1))
    return effect * (1 + _FEW_BLOCKS / (blocks - 1)) if noticed else 1.0
