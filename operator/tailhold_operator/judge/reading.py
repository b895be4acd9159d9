"""From what a pod's `/metrics` says to its counters of each objective."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, isclose, isfinite
from typing import NamedTuple, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tailhold_api import names
from tailhold_api.slo import Objective
from tailhold_operator.judge.windows import Reading

Buckets: TypeAlias = Mapping[float, float]
"""Requests within each edge, in seconds, since the pod started."""
BUCKET = f"{names.METRIC_OBJECTIVE_SECONDS}_bucket"
"""The series that are read."""
_MOST = 2.0**53
"""A counter beyond it does not count by ones any more."""


class Counter(NamedTuple):
    """What is counted apart."""

    revision: str
    """The name of the revision that answers; empty where the pod does not say."""
    objective: str


def read_objectives(text: str) -> dict[Counter, dict[float, float]] | None:
    """The buckets of each counter; None where the text is no metrics: a login page, half an answer.

    What is not a number (NaN) is left out, and with it the objective is missing rather than good. Only the lines of
    objectives are parsed: a page has thousands of others.
    """
    found: dict[Counter, dict[float, float]] = {}
    lines = [line for line in text.splitlines() if line.startswith(BUCKET)]
    if not lines and text.strip() and not _is_metrics(text):
        return None
    try:
        for family in text_string_to_metric_families("\n".join((*lines, ""))):
            for sample in family.samples:
                if sample.name == BUCKET and isfinite(sample.value):
                    found.setdefault(counter_of(sample.labels), {})[float(sample.labels["le"])] = sample.value
    except (ValueError, KeyError):
        return None
    return found


def _is_metrics(text: str) -> bool:
    """Whether a page without a single objective is one of metrics all the same."""
    return any(line.startswith("# TYPE ") for line in text.splitlines())


def counter_of(labels: Mapping[str, str]) -> Counter:
    """What a series counts. Raises KeyError where it says no objective."""
    return Counter(labels.get("revision", ""), labels["objective"])


def reading(buckets: Buckets, objective: Objective, *, warm: bool = True) -> Reading | None:
    """The counters of an objective; None where its threshold is no edge, so that nothing is known exactly, and where
    they cannot be counters: fewer requests within a higher edge, or less than none."""
    total = buckets.get(inf)
    edges = sorted((edge for edge in buckets if edge != inf), reverse=True)
    at = next((edge for edge in edges if isclose(edge, objective.threshold_seconds, rel_tol=1e-6)), None)
    if total is None or at is None or not _are_counters([total, *(buckets[edge] for edge in edges)]):
        return None
    lower = edges[edges.index(at) + 1 :]
    return Reading(total, total - buckets[at], tuple(total - buckets[edge] for edge in lower), warm)


def _are_counters(values: Sequence[float]) -> bool:
    """By edge, the highest first."""
    return values[-1] >= 0 and values[0] <= _MOST and all(high >= low for high, low in pairwise(values))


def readings(
    counters: Mapping[Counter, Buckets], objectives: Iterable[Objective], revision: str
) -> dict[Counter, Reading]:
    """A pod's counters of what is promised. A server of before revisions were named counts for the one that it runs;
    nothing is made of it while that is not known."""
    known = {each.name: each for each in objectives}
    found: dict[Counter, Reading] = {}
    for counter, buckets in counters.items():
        named = Counter(counter.revision or revision, counter.objective)
        objective = known.get(named.objective)
        read = reading(buckets, objective) if objective and named.revision else None
        if read and len(found) < _MOST_COUNTERS:
            found[named] = read
    return found


_MOST_COUNTERS = 64
"""Of one pod: eight objectives, and as many revisions; no pod can fill our memory."""
