"""From what a pod's `/metrics` says to its counters of each objective."""

from collections.abc import Mapping
from math import inf, isclose, isfinite

from prometheus_client.parser import text_string_to_metric_families

from tailhold_api import names
from tailhold_api.slo import Objective
from tailhold_operator.judge.windows import Reading

Buckets = Mapping[float, float]
"""Requests within each edge, in seconds, since the pod started."""
_BUCKET = f"{names.METRIC_OBJECTIVE_SECONDS}_bucket"


def read_objectives(text: str) -> dict[str, dict[float, float]] | None:
    """The buckets of each objective by its name; None where the text is no metrics: a login page, half an answer.

    What is not a number (NaN) is left out, and with it the objective is missing rather than good.
    """
    found: dict[str, dict[float, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == _BUCKET and isfinite(sample.value):
                    found.setdefault(sample.labels["objective"], {})[float(sample.labels["le"])] = sample.value
    except (ValueError, KeyError):
        return None
    return found


def reading(buckets: Buckets, objective: Objective, *, warm: bool = True) -> Reading | None:
    """The counters of an objective; None where its threshold is no edge, so that nothing is known exactly."""
    total = buckets.get(inf)
    edges = sorted((edge for edge in buckets if edge != inf), reverse=True)
    at = next((edge for edge in edges if isclose(edge, objective.threshold_seconds, rel_tol=1e-6)), None)
    if total is None or at is None:
        return None
    lower = edges[edges.index(at) + 1 :]
    return Reading(total, total - buckets[at], tuple(total - buckets[edge] for edge in lower), warm)
