"""What is asked of running pods, at their internal port."""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from pydantic import BaseModel, ValidationError

from tailhold_api import codec, names
from tailhold_api.handover import Handover, handover_audience
from tailhold_api.parts import ContentPart
from tailhold_api.rollout import Probe
from tailhold_api.slo import Objectives
from tailhold_api.status import ProbeStatus, Progress, StartPhase
from tailhold_operator.latency import read_buckets
from tailhold_operator.observe import NOTHING, ChainHead, Pod, Report
from tailhold_operator.progress import coarse, read_progress

_ASK = httpx.Timeout(3, connect=1)
_PUSH = httpx.Timeout(120, connect=2)
"""A new snapshot is loaded before the answer comes."""
_METRICS_SECONDS = 3.0
"""For a whole page, however it trickles."""
_LONGEST_PAGE = 4 * 2**20
_UPLOADS = re.compile("([0-9a-f]{64})?")
_UNKNOWN = (401, 403, 404, 405)
"""Not the pod's opinion of the content: a key that it has not got yet, or another program."""


@dataclass(frozen=True)
class Taken:
    """The content is in force."""


@dataclass(frozen=True)
class Declined:
    """The pod will not have the content, and goes on with what it has."""

    words: str


@dataclass(frozen=True)
class Unanswered:
    """Nothing is known: try again."""

    words: str


Answer = Taken | Declined | Unanswered


class Pods(Protocol):
    """Running pods. What does not answer is None."""

    async def report(self, pod: Pod) -> Report | None:
        """What a server runs."""

    async def progress(self, pod: Pod) -> Mapping[str, Any] | None:
        """How far an index Job is."""

    async def buckets(self, pod: Pod) -> Mapping[float, float]:
        """How long whole answers took since the pod started."""

    async def metrics(self, pod: Pod) -> str | Unanswered:
        """What a server counts of its objectives, and maybe more."""

    async def push(self, pod: Pod, content: ContentPart, audience: str) -> Answer:
        """Hand a server its content."""

    async def tell(self, pod: Pod, objectives: Objectives, audience: str) -> Answer:
        """Have a server count these."""

    async def hand_over(self, pod: Pod, handover: Handover, audience: str) -> Answer:
        """Have a server hand over so much."""

    async def probe(self, pod: Pod, probe: Probe, audience: str) -> ProbeStatus | None:
        """Ask a server questions of ours."""


class HttpPods:
    """Pods that are reached by their addresses."""

    def __init__(self, client: httpx.AsyncClient, token: Callable[[str], str]) -> None:
        self._client = client
        self._token = token

    async def report(self, pod: Pod) -> Report | None:
        """What a server runs."""
        told = await self._json(pod, "/v1/tuning")
        return None if told is None else _report(told)

    async def progress(self, pod: Pod) -> Mapping[str, Any] | None:
        """How far an index Job is."""
        return await self._json(pod, "/progress")

    async def buckets(self, pod: Pod) -> Mapping[float, float]:
        """How long whole answers took since the pod started."""
        try:
            answer = await self._client.get(_address(pod, "/metrics"), timeout=_ASK, extensions=_name(pod))
            return read_buckets(answer.raise_for_status().text)
        except httpx.HTTPError:
            return {}

    async def metrics(self, pod: Pod) -> str | Unanswered:
        """What a server counts of its objectives, and maybe more."""
        try:
            async with asyncio.timeout(_METRICS_SECONDS):
                return await self._page(pod, "/metrics")
        except TimeoutError:
            return Unanswered(f"no answer within {_METRICS_SECONDS:.0f} s")
        except httpx.HTTPStatusError as error:
            return Unanswered(f"status {error.response.status_code}")
        except httpx.HTTPError as error:
            return Unanswered(f"{type(error).__name__}: {error}")

    async def _page(self, pod: Pod, path: str) -> str | Unanswered:
        """A text of any length is not read."""
        url, read = _address(pod, path), bytearray()
        async with self._client.stream("GET", url, timeout=_ASK, extensions=_name(pod)) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_bytes():
                read += part
                if len(read) > _LONGEST_PAGE:
                    return Unanswered(f"{path} is longer than {_LONGEST_PAGE} bytes")
        return read.decode(errors="replace")

    async def push(self, pod: Pod, content: ContentPart, audience: str) -> Answer:
        """Hand a server its content."""
        return await self._put(pod, "/internal/content", content, audience, _PUSH)

    async def tell(self, pod: Pod, objectives: Objectives, audience: str) -> Answer:
        """Have a server count these."""
        return await self._put(pod, "/internal/objectives", objectives, audience, _ASK)

    async def hand_over(self, pod: Pod, handover: Handover, audience: str) -> Answer:
        """Have a server hand over so much."""
        proof = self._token(handover_audience(audience)) if not handover.is_over else ""
        signed = handover.model_copy(update={"token": proof})
        return await self._put(pod, "/internal/handover", signed, audience, _ASK)

    async def probe(self, pod: Pod, probe: Probe, audience: str) -> ProbeStatus | None:
        """Ask a server questions of ours."""
        patience = httpx.Timeout(probe.max_seconds + 10, connect=2)
        headers = {"Authorization": f"Bearer {self._token(audience)}", "Content-Type": "application/json"}
        url, body = _address(pod, "/internal/probe"), codec.dump(probe)
        try:
            answer = await self._client.post(
                url, content=body, headers=headers, timeout=patience, extensions=_name(pod)
            )
            return codec.load_lenient(ProbeStatus, answer.raise_for_status().json())
        except (httpx.HTTPError, ValueError):
            return None

    async def _put(self, pod: Pod, path: str, part: BaseModel, audience: str, patience: httpx.Timeout) -> Answer:
        headers = {"Authorization": f"Bearer {self._token(audience)}", "Content-Type": "application/json"}
        url, body = _address(pod, path), codec.dump(part)
        try:
            answer = await self._client.put(url, content=body, headers=headers, timeout=patience, extensions=_name(pod))
        except httpx.HTTPError as error:
            return Unanswered(f"{type(error).__name__}: {error}")
        return _understood(answer)

    async def _json(self, pod: Pod, path: str) -> dict[str, Any] | None:
        try:
            answer = await self._client.get(_address(pod, path), timeout=_ASK, extensions=_name(pod))
            told = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return None
        return told if isinstance(told, dict) else None


def _report(told: Mapping[str, Any]) -> Report:
    return Report(
        pod_digest=str(told.get("podDigest") or ""),
        content_digest=str(told.get("contentDigest") or ""),
        snapshot=str(told.get("snapshot") or ""),
        uploads=_uploads(told.get("uploads")),
        phase=str(told.get("phase") or ""),
        phases=_phases(told.get("phases")),
        error=str(told.get("error") or ""),
        engine=told["engine"] if isinstance(told.get("engine"), dict) else {},
        progress=_progress(told.get("progress")),
        rates=told["rates"] if isinstance(told.get("rates"), dict) else {},
        audit=_chain_head(told.get("audit")),
        objectives=_objectives(told),
        handover=_handover(told),
    )


def _handover(told: Mapping[str, Any]) -> Handover | None:
    """None of a server that hands over nothing ever, or says what cannot be understood."""
    if "handover" not in told:
        return None
    if told["handover"] is None:
        return NOTHING
    try:
        return codec.load_lenient(Handover, told["handover"])
    except ValidationError:
        return None


def _objectives(told: Mapping[str, Any]) -> Objectives | None:
    """What cannot be understood is no objective of ours: the pod is told anew."""
    if "objectives" not in told:
        return None
    try:
        return codec.load_lenient(Objectives, {"objectives": told["objectives"]})
    except ValidationError:
        return Objectives(objectives=())


def _chain_head(told: Any) -> ChainHead | None:
    sequence, digest = (told.get("sequence"), told.get("hash")) if isinstance(told, dict) else (None, None)
    if not isinstance(sequence, int) or sequence < 1 or not re.fullmatch("[0-9a-f]{64}", str(digest)):
        return None
    return ChainHead(sequence, str(digest))


def _uploads(told: Any) -> str | None:
    digest = told.get("digest") if isinstance(told, dict) else None
    return digest if isinstance(digest, str) and _UPLOADS.fullmatch(digest) else None


def _progress(told: Any) -> Progress | None:
    found = read_progress(told if isinstance(told, dict) else None)
    return coarse(found) if found else None


def _phases(told: object) -> tuple[StartPhase, ...]:
    """Those that can be understood."""
    found: list[StartPhase] = []
    for each in told if isinstance(told, list) else ():
        with suppress(ValidationError):
            found.append(codec.load_lenient(StartPhase, each))
    return tuple(found)


def _understood(answer: httpx.Response) -> Answer:
    if answer.is_success:
        return Taken()
    words = _words(answer)
    if answer.status_code in _UNKNOWN or answer.status_code >= 500:
        return Unanswered(words)
    return Declined(words)


def _words(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _address(pod: Pod, path: str) -> str:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    return f"{'https' if pod.server_name else 'http'}://{host}:{names.INTERNAL_PORT}{path}"


def _name(pod: Pod) -> dict[str, str]:
    """The name that the certificate is checked under: a pod has no lasting address that one could be made for."""
    return {"sni_hostname": pod.server_name} if pod.server_name else {}
