"""Parts of what `/v1/tuning` tells, as the wire has them."""

from collections.abc import Iterable
from typing import Any

from tailhold_server.capacity import Capacity, Rates, Shape
from tailhold_server.content import Index
from tailhold_server.startup import Row


def phases_body(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The start, step by step."""
    return [
        {
            "name": row.name,
            "beganMilliseconds": row.began,
            "milliseconds": row.milliseconds,
            "overlappedMilliseconds": row.overlapped,
        }
        for row in rows
    ]


def rates_body(rates: Rates, shape: Shape | None, carried: Capacity | None) -> dict[str, Any]:
    """As `/v1/tuning` tells them; what is not known is null."""
    return {
        "prefillTokensPerSecond": _rounded(rates.prefill),
        "decodeTokensPerSecond": _rounded(rates.all_streams),
        "decodeTokensPerSecondPerStream": _rounded(rates.stream),
        "decodeTokensPerSecondByStreams": {str(streams): _rounded(value) for streams, value in rates.curve},
        "requests": {
            "seen": shape.answers,
            "promptTokens": _rounded(shape.prompt_tokens),
            "computedPromptTokens": _rounded(shape.fresh_tokens),
            "answerTokens": _rounded(shape.answer_tokens),
        }
        if shape
        else None,
        "capacity": {
            "requestsPerSecond": _rounded(carried.requests_per_second),
            "limitedBy": carried.limited_by,
            "why": carried.why,
        }
        if carried
        else None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def index_body(index: Index) -> dict[str, Any]:
    """What a search finds, as far as it is known without one."""
    return {
        "snapshot": index.snapshot,
        "kind": index.kind.value,
        "chunks": len(index.chunks),
        "recallAt10": index.recall,
        "deletedDocuments": len(index.chunks.gone),
    }
