"""How many requests count as one, because slow requests come together.

In a queue one long wait makes the next ones long as well. The design effect is the variance of bad requests in
blocks of time over what independent requests would have; requests and bad ones divided by it can be used as if
they were independent (J. N. K. Rao and A. J. Scott, "A simple method for the analysis of clustered binary data",
Biometrics 48, 1992).
"""

import numpy as np

from tailhold_operator.judge.counts import Counts, Floats

LEAST_BLOCKS = 4
"""Blocks grow by doubling until there would be fewer."""
_NOTICED = 2.5
"""Standard deviations above 1 before a design effect is believed: independent requests are not made to look like
clusters by chance."""
_FEW_BLOCKS = 4.0
"""A variance out of few blocks is more likely too small than too large: it is multiplied by 1 + this / (blocks - 1)."""
ENOUGH_SLOW = 50
"""Requests beyond a threshold before it tells how they cluster."""


def design_effect(bad: Floats, total: Floats) -> Floats:
    """At least 1; the largest over blocks of 1, 2, 4, ... cells, which covers waits that last longer than a cell."""
    cells, size = bad.shape[-1], 1
    effect = np.ones(bad.shape[:-1])
    while cells // size >= LEAST_BLOCKS:
        effect = np.maximum(effect, _of_blocks(_blocks(bad, size), _blocks(total, size)))
        size *= 2
    return effect


def clustering(counts: Counts) -> Floats:
    """The design effect at the highest threshold that enough requests are beyond, the objective's own first.

    Before a side has had its first long wait its bad requests cannot tell that they come together. In queues the
    design effect hardly depends on the threshold: see `python -m tailhold_bench.judge clusters`.
    """
    effect = np.ones(counts.bad.shape[:-1])
    open_ = np.ones(counts.bad.shape[:-1], dtype=bool)
    for slow in (counts.bad, *counts.slow):
        here = open_ & (slow.sum(axis=-1) >= ENOUGH_SLOW)
        effect = np.where(here, design_effect(slow, counts.total), effect)
        open_ &= ~here
    if counts.slow:
        effect = np.where(open_, design_effect(counts.slow[-1], counts.total), effect)
    return np.maximum(effect, design_effect(counts.bad, counts.total))


def _blocks(cells: Floats, size: int) -> Floats:
    """Sums of so many cells; the oldest that fill no block are left out."""
    kept = cells.shape[-1] // size
    return np.asarray(cells[..., cells.shape[-1] - kept * size :].reshape(*cells.shape[:-1], kept, size).sum(axis=-1))


def _of_blocks(bad: Floats, total: Floats) -> Floats:
    blocks = bad.shape[-1]
    share = bad.sum(axis=-1, keepdims=True) / np.maximum(total.sum(axis=-1, keepdims=True), 1.0)
    expected = (total * share * (1 - share)).sum(axis=-1)
    spread = ((bad - total * share) ** 2).sum(axis=-1)
    effect = spread / np.maximum(expected, 1e-12) * blocks / (blocks - 1)
    noticed = (expected > 0) & (effect > 1 + _NOTICED * np.sqrt(2 / (blocks - 1)))
    return np.where(noticed, effect * (1 + _FEW_BLOCKS / (blocks - 1)), 1.0)
