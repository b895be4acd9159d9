"""What a search found, to the passages that may be used."""

import math
from collections.abc import Sequence

from tailhold_api.sources import Metric
from tailhold_server.prompt import Passage


def choose(
    scores: Sequence[float], ids: Sequence[int], *, count: int, min_score: float, metric: Metric
) -> tuple[Passage, ...]:
    """Each chunk once, best first; places that nothing fills (-1) and scores below `min_score` are left out.

    Cosine scores lie within [-1, 1]: float error beyond is cut off.
    """
    best: dict[int, float] = {}
    for score, index in zip(scores, ids, strict=True):
        if 0 <= index < count and math.isfinite(score) and index not in best:
            best[index] = min(1.0, max(-1.0, score)) if metric is Metric.COSINE else score
    ranked = sorted(best.items(), key=lambda item: -item[1])
    return tuple(Passage(index, score) for index, score in ranked if _passes(score, min_score))


def _passes(score: float, min_score: float) -> bool:
    return min_score <= -1.0 or score >= min_score
