"""What a Prometheus is asked, and what its answer says: pure."""

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias

from tailhold_api.scraping import Prometheus
from tailhold_operator.judge.reading import BUCKET, Counter, counter_of

Series: TypeAlias = tuple[str, Counter, frozenset[tuple[str, str]]]
"""Pod, what is counted, and what else tells it from others: two jobs may scrape the same pod."""
Found: TypeAlias = dict[str, dict[Counter, dict[float, float]]]
"""Buckets by the pod's name."""
_LONGEST = 200


class AnswerError(ValueError):
    """An answer that is none; the text is for people."""


def query(source: Prometheus, namespace: str, pods: Sequence[str]) -> str:
    """One instant query for all counters of these pods, as they stood when they were scraped last."""
    alike = "|".join(re.escape(name).replace("\\-", "-") for name in sorted(pods))
    matchers = [("namespace", "=", namespace), ("pod", "=~", alike)]
    matchers += [(each.name, "=", each.value) for each in source.labels]
    inside = ",".join(f"{name}{sign}{json.dumps(value)}" for name, sign, value in matchers)
    return f"last_over_time({BUCKET}{{{inside}}}[{source.stale_seconds}s])"


def read_answer(status: int, text: str) -> Found:
    """The counters of each pod. Raises AnswerError where the answer is no result of this query."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict) or told.get("status") != "success" or status >= 400:
        raise AnswerError(f"status {status}: {_words(told)}")
    data = told.get("data")
    if not isinstance(data, dict) or data.get("resultType") != "vector" or not isinstance(data.get("result"), list):
        raise AnswerError("the answer is no vector of samples")
    return _newest(_series(data["result"]))


def _words(told: Any) -> str:
    """Of an error: the server's own, and nothing of a page that is none of Prometheus."""
    if isinstance(told, dict) and told.get("error"):
        return str(told["error"])[:_LONGEST]
    return "the answer is not Prometheus's: a sign-in page, or another program"


def _series(result: Sequence[Any]) -> dict[Series, dict[float, float]]:
    found: dict[Series, dict[float, float]] = {}
    for each in result:
        try:
            labels, value, edge = dict(each["metric"]), float(each["value"][1]), float(each["metric"]["le"])
            counter, pod = counter_of(labels), str(labels["pod"])
        except (KeyError, TypeError, ValueError, IndexError):
            continue
        if isfinite(value):
            rest = frozenset((name, str(text)) for name, text in labels.items() if name != "le")
            found.setdefault((pod, counter, rest), {})[edge] = value
    return found


def _newest(series: Mapping[Series, dict[float, float]]) -> Found:
    """Where two series tell of the same counters, the one that is further: their edges are never mixed."""
    found: Found = {}
    for (pod, counter, _), buckets in series.items():
        known = found.setdefault(pod, {})
        known[counter] = max(known.get(counter, {}), buckets, key=lambda each: max(each.values(), default=-1.0))
    return found
