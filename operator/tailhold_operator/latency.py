"""The 99th percentile out of histograms that only ever grow."""

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tailhold_api import names

Buckets: TypeAlias = Mapping[float, float]
"""Requests within each bound, in seconds, since the pod started."""


def read_buckets(text: str) -> dict[float, float]:
    """The buckets of the time to the whole answer, added over labels; none where the text cannot be read."""
    found: dict[float, float] = {}
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:
        return {}
    for family in families:
        for sample in family.samples:
            if sample.name == f"{names.METRIC_E2E_SECONDS}_bucket":
                bound = float(sample.labels["le"])
                found[bound] = found.get(bound, 0.0) + sample.value
    return found


def grown(before: Buckets, after: Buckets) -> dict[float, float]:
    """What came in between. A pod that started again begins at zero."""
    restarted = any(after.get(bound, 0) < count for bound, count in before.items())
    return {bound: count - (0 if restarted else before.get(bound, 0)) for bound, count in after.items()}


def added(parts: Iterable[Buckets]) -> dict[float, float]:
    """All pods together; only bounds that all of them have."""
    known = [part for part in parts if part]
    common = set.intersection(*(set(part) for part in known)) if known else set()
    return {bound: sum(part[bound] for part in known) for bound in common}


def quantile_milliseconds(buckets: Buckets, share: float) -> int | None:
    """Where a share of the requests ends, between two bounds in proportion; None without any request."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if total <= 0:
        return None
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= share * total:
            inside = (share * total - below) / max(buckets[bound] - below, 1e-9)
            seconds = lower if math.isinf(bound) else lower + (bound - lower) * inside
            return round(seconds * 1000)
        lower, below = bound, buckets[bound]
    return None
