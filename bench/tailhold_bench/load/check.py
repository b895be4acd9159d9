"""Whether the generator kept up: figures of one that did not are about itself, not about the server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_LAG_SECONDS = 0.001
LAG_OF_LATENCY = 0.01


@dataclass(frozen=True)
class Bounds:
    """What the generator may take."""

    lag_seconds: float | None = None
    """For the p99 of the lag. None: a hundredth of the median latency, and at least a millisecond."""
    cpu_share: float = 0.7
    """Of one core, for each process: above it answers wait to be read."""


@dataclass(frozen=True)
class Checked:
    """The verdict."""

    is_valid: bool
    lag_bound_seconds: float
    text: str


def check(lag_p99: float, median: float, cpu_shares: Sequence[float], bounds: Bounds) -> Checked:
    """`lag_p99` and `median`, of the whole latency, in seconds; nan and infinite where there is none."""
    bound = bounds.lag_seconds or max(LEAST_LAG_SECONDS, LAG_OF_LATENCY * median if math.isfinite(median) else 0.0)
    faults = []
    if math.isnan(lag_p99):
        faults.append("nothing was sent")
    elif lag_p99 > bound:
        faults.append(f"{1000 * lag_p99:.2f} ms late at p99, allowed {1000 * bound:.2f} ms")
    if cpu_shares and max(cpu_shares) > bounds.cpu_share:
        faults.append(f"{max(cpu_shares):.0%} of a core in one process, allowed {bounds.cpu_share:.0%}")
    if faults:
        advice = "use --processes, a machine of its own, or a lower rate"
        return Checked(False, bound, f"the generator was too slow: results invalid ({'; '.join(faults)}); {advice}")
    said = f"the generator kept up: {1000 * lag_p99:.2f} ms late at p99, allowed {1000 * bound:.2f} ms"
    return Checked(True, bound, said)
