"""Answers in OpenAI's shape: the chunks of a stream, and the whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailhold_server.citations import Citation
from tailhold_server.pipeline import Answer, Prepared, Step
from tailhold_server.ports import Likely, TokenOdds
from tailhold_server.routes.chat.protocol import Usage
from tailhold_server.sources import annotation_body, source_body


@dataclass(frozen=True)
class Frame:
    """What all chunks of an answer share."""

    request_id: str
    created: int
    model: str
    """As the client called it."""
    revision: str
    usage: Usage
    trace: str = ""
    """The trace's id, empty where there is none."""
    is_made_up: bool = False
    """By the stand-in engine, and the answer says so."""


def first_chunk(frame: Frame, answer: Answer) -> dict[str, Any]:
    """Role and sources: known before the first token."""
    delta = {"role": "assistant", "content": ""}
    return _chunk(frame, answer, delta, None) | {"tailhold": _sources_part(frame, answer.prepared)}


def step_chunk(frame: Frame, step: Step, answer: Answer) -> dict[str, Any]:
    """Text, the citations that it completes, and with the last one all citations again and the stages."""
    delta: dict[str, Any] = {"content": step.text}
    if step.citations:
        delta["annotations"] = _indexed(step.citations, answer)
    chunk = _chunk(frame, answer, delta, step.finish_reason, step.odds)
    if step.finish_reason:
        chunk["tailhold"] = _ending_part(frame, answer)
    return chunk


def usage_chunk(frame: Frame, answer: Answer) -> dict[str, Any]:
    """The last chunk of a client that asked for usage: it alone has no choice."""
    return _base(frame, "chat.completion.chunk") | {"choices": [], "usage": usage_body(answer)}


def completion(
    frame: Frame, text: str, finish_reason: str, answer: Answer, odds: Sequence[TokenOdds] = ()
) -> dict[str, Any]:
    """The whole answer at once."""
    message = {"role": "assistant", "content": text, "refusal": None, "annotations": _annotations(answer)}
    choice = {"index": 0, "message": message, "logprobs": _logprobs(odds), "finish_reason": finish_reason}
    said = _sources_part(frame, answer.prepared) | _ending_part(frame, answer)
    return _base(frame, "chat.completion") | {
        "choices": [choice],
        "usage": usage_body(answer),
        "tailhold": said,
    }


def usage_body(answer: Answer) -> dict[str, Any]:
    """Tokens; those of the prompt hold the retrieved passages."""
    prompt = len(answer.prepared.prompt_ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer.completion_tokens,
        "total_tokens": prompt + answer.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def _base(frame: Frame, kind: str) -> dict[str, Any]:
    return {"id": frame.request_id, "object": kind, "created": frame.created, "model": frame.model}


def _chunk(
    frame: Frame, answer: Answer, delta: dict[str, Any], finish_reason: str | None, odds: Sequence[TokenOdds] = ()
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": _logprobs(odds), "finish_reason": finish_reason}
    return _base(frame, "chat.completion.chunk") | {"choices": [choice]} | _usage_part(frame, answer)


def _usage_part(frame: Frame, answer: Answer) -> dict[str, Any]:
    if frame.usage is Usage.NOWHERE:
        return {}
    return {"usage": usage_body(answer) if frame.usage is Usage.EVERYWHERE else None}


def _logprobs(odds: Sequence[TokenOdds]) -> dict[str, Any] | None:
    if not odds:
        return None
    told = [_likely(each) | {"top_logprobs": [_likely(other) for other in each.top]} for each in odds]
    return {"content": told, "refusal": None}


def _likely(each: Likely) -> dict[str, Any]:
    """JSON has no infinity: what cannot be drawn at all is said to be as unlikely as OpenAI says it."""
    return {"token": each.token, "logprob": max(each.logprob, -9999.0), "bytes": list(each.token.encode())}


def _sources_part(frame: Frame, prepared: Prepared) -> dict[str, Any]:
    context = {
        "chunks": len(prepared.sources),
        "dropped": prepared.dropped,
        "truncated": prepared.truncated,
        "tokens": prepared.context_tokens,
        "snapshot": prepared.content.index.snapshot,
    }
    return {
        "revision": frame.revision,
        "sources": [source_body(source) for source in prepared.sources],
        "context": context,
    }


def _ending_part(frame: Frame, answer: Answer) -> dict[str, Any]:
    stages = {stage: round(milliseconds, 3) for stage, milliseconds in answer.stages.items()}
    said = {"revision": frame.revision, "annotations": _annotations(answer), "stages": stages}
    said |= {"engine": "stand-in"} if frame.is_made_up else {}
    return said | ({"trace": frame.trace} if frame.trace else {})


def _annotations(answer: Answer) -> list[dict[str, Any]]:
    return [annotation_body(citation, answer.prepared.sources) for citation in answer.citations]


def _indexed(citations: Sequence[Citation], answer: Answer) -> list[dict[str, Any]]:
    """With their place in the whole list: OpenAI's client joins the lists of a stream by it."""
    first = len(answer.citations) - len(citations)
    return [
        {"index": first + place, **annotation_body(citation, answer.prepared.sources)}
        for place, citation in enumerate(citations)
    ]
