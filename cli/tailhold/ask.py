"""Asking a served pipeline: the answer as it streams, its sources, and the time of each stage."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with what came beside it."""

    text: str
    sources: tuple[dict[str, Any], ...] = ()
    """Numbered sources in the order in which the model saw them."""
    citations: tuple[dict[str, Any], ...] = ()
    """`url_citation` annotations: where in the text which source is cited."""
    stages: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, as the server measured them."""
    revision: str = ""
    trace: str = ""
    """The trace's id, empty where the server traces nothing."""


class AskError(Exception):
    """The server refused or failed; the message is its own."""


def ask(url: str, question: str, *, on_text: Callable[[str], None], max_tokens: int | None = None) -> Answer:
    """Ask over the OpenAI surface at `url` (ending in /v1), streamed. Raises AskError."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "temperature": 0,
    }
    body |= {"max_tokens": max_tokens} if max_tokens else {}
    return _collected(_events(url, body), on_text)


def _events(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    try:
        with httpx.stream(
            "POST", f"{url.rstrip('/')}/chat/completions", json=body, timeout=httpx.Timeout(300, connect=5)
        ) as response:
            if response.status_code != httpx.codes.OK:
                response.read()
                raise AskError(error_text(response) + _hint(url, response.status_code))
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])
    except httpx.HTTPError as error:
        raise AskError(f"no answer from {url}: {error}; name the pipeline's address with --url") from error


def _hint(url: str, status: int) -> str:
    base = url.rstrip("/")
    return "" if status != httpx.codes.NOT_FOUND or base.endswith("/v1") else f"; the URL ends in /v1: --url {base}/v1"


def error_text(response: httpx.Response) -> str:
    """The message of OpenAI's error envelope, or the body where there is none."""
    try:
        return f"{response.status_code}: {response.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code}: {response.text[:500]}"


def _collected(events: Iterator[dict[str, Any]], on_text: Callable[[str], None]) -> Answer:
    text, extra = [], dict[str, Any]()
    for event in events:
        if "error" in event:
            raise AskError(str(event["error"].get("message")))
        extra |= event.get("tailhold") or {}
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            if piece := delta.get("content"):
                text.append(piece)
                on_text(piece)
    return Answer(
        "".join(text),
        tuple(extra.get("sources", ())),
        tuple(extra.get("annotations", ())),
        extra.get("stages", {}),
        extra.get("revision", ""),
        extra.get("trace", ""),
    )
