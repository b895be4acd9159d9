"""Asking a served pipeline: the answer as it streams, its sources, and the time of each stage."""

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tailhold.given import GivenError, read_given


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


DEFAULT_URL = "http://127.0.0.1:8000/v1"
_INTERNAL_PORT = 8001
_TRUST = "name the authority of its certificate with --ca-file"


class AskError(Exception):
    """The server refused or failed; the message is its own."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a pipeline is served, and how it is spoken to."""

    url: str
    """Ending in /v1."""
    api_key: str | None = None
    ca_file: Path | None = None
    """PEM file of the authorities that sign the server's certificate; the system's without it."""
    is_default: bool = False
    """Whether nobody named the URL."""

    def client(self) -> httpx.Client:
        """For requests to it. Raises AskError."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return httpx.Client(headers=headers, verify=self.trust(), timeout=httpx.Timeout(300, connect=5))

    def trust(self) -> ssl.SSLContext | bool:
        """How its certificate is checked. Raises AskError."""
        if self.ca_file is None:
            return True
        try:
            read_given(self.ca_file)
            return ssl.create_default_context(cafile=self.ca_file)
        except GivenError as error:
            raise AskError(str(error)) from None
        except (OSError, ssl.SSLError) as error:
            raise AskError(f"{self.ca_file} holds no certificates of authorities: {error}") from error


def ask(endpoint: Endpoint, question: str, *, on_text: Callable[[str], None], max_tokens: int | None = None) -> Answer:
    """Ask over the OpenAI surface, streamed. Raises AskError."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "temperature": 0,
    }
    body |= {"max_tokens": max_tokens} if max_tokens else {}
    return _collected(_events(endpoint, body), on_text)


def _events(endpoint: Endpoint, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    url = endpoint.url
    try:
        with (
            endpoint.client() as client,
            client.stream("POST", f"{url.rstrip('/')}/chat/completions", json=body) as response,
        ):
            if response.status_code != httpx.codes.OK:
                response.read()
                raise AskError(error_text(response) + _hint(url, response.status_code))
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])
    except httpx.HTTPError as error:
        raise AskError(f"no answer from {url}: {error}; {_next_step(endpoint, error)}") from error


def _next_step(endpoint: Endpoint, error: httpx.HTTPError) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return _TRUST
    if not isinstance(error, httpx.ConnectError):
        return "ask again; the server's log says why"
    return starting(endpoint) + ("; served elsewhere? name the address with --url" if endpoint.is_default else "")


def starting(endpoint: Endpoint) -> str:
    """What a server that does not listen for questions yet says of itself, where its probes answer."""
    with httpx.Client(verify=endpoint.trust(), timeout=1) as client:
        for probes in _probes(endpoint.url):
            with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
                return _told(f"{probes}/readyz", client.get(f"{probes}/readyz").json())
    return "nothing listens there: it may still be starting (`tailhold serve` says when it is ready), or have ended"


def _probes(url: str) -> Iterator[str]:
    """Where the internal port may be: `tailhold serve` has it beside the other one."""
    asked = httpx.URL(url)
    beside = (asked.port or (443 if asked.scheme == "https" else 80)) + 1
    for port in dict.fromkeys((beside, _INTERNAL_PORT)):
        for scheme in ("http", "https"):
            yield str(asked.copy_with(scheme=scheme, port=port, raw_path=b"")).rstrip("/")


def _told(where: str, said: Mapping[str, Any]) -> str:
    if said["error"]:
        return f"the server there cannot serve, as {where} says: {said['error']}"
    if said["ok"]:
        return f"the server of {where} is ready, and takes questions at another port"
    step = f", {json.dumps(said['progress'])}" if said["progress"] else ""
    return f"the server is still starting, as {where} says: phase {said['phase']}{step}; ask again in a while"


def _hint(url: str, status: int) -> str:
    if status == httpx.codes.UNAUTHORIZED:
        return "; give your key with --api-key or in TAILHOLD_API_KEY"
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
