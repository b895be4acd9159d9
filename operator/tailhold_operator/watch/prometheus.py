"""Counters out of a Prometheus that scrapes the pods."""

import base64
import binascii
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tailhold_api.scraping import Authorities, Prometheus
from tailhold_operator.cluster import Cluster
from tailhold_operator.errors import ClusterError, RefusedError
from tailhold_operator.judge.reading import readings
from tailhold_operator.kinds import Ref
from tailhold_operator.sides import answers
from tailhold_operator.watch.memory import Counters
from tailhold_operator.watch.querying import AnswerError, Found, query, read_answer
from tailhold_operator.watch.sources import Source, Told, named
from tailhold_operator.watch.target import Target

_ASK = httpx.Timeout(10, connect=3)
_KEPT_SECONDS = 60.0
"""A Secret or ConfigMap that was read is not read again before; a new token is used a minute later at most."""
_MOST_BYTES = 32 * 2**20


class SettingsError(Exception):
    """Something that a query needs cannot be had; the text is for people."""


@dataclass
class _Ready:
    """What queries of one pipeline go through."""

    source: Prometheus
    client: httpx.AsyncClient
    since: float


class PrometheusSource:
    """One query a look for all pods of a pipeline."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._ready: dict[tuple[str, Prometheus], _Ready] = {}

    async def read(self, target: Target) -> Told:
        """All pods at once."""
        source = target.slo.source.prometheus if target.slo.source else None
        if source is None or not target.pods:
            return Told({})
        try:
            found = await self._ask(source, target)
        except (SettingsError, AnswerError) as error:
            return Told({}, f"Prometheus at {source.url}: {error}")
        except httpx.HTTPError as error:
            await self._drop((target.namespace, source))
            return Told({}, f"Prometheus at {source.url}: {type(error).__name__}: {error}")
        counters = {pod.uid: _counters(found[pod.name], target, pod.uid) for pod in target.pods if pod.name in found}
        missing = [pod.name for pod in target.pods if answers(pod) and pod.uid not in counters]
        return Told(counters, _missing(source, missing))

    async def close(self) -> None:
        """End all connections."""
        for key in list(self._ready):
            await self._drop(key)

    async def _ask(self, source: Prometheus, target: Target) -> Found:
        client = await self._client(source, target.namespace)
        body = {"query": query(source, target.namespace, [pod.name for pod in target.pods])}
        url = f"{source.url.rstrip('/')}/api/v1/query"
        async with client.stream("POST", url, data=body) as answer:
            read = bytearray()
            async for part in answer.aiter_bytes():
                read += part
                if len(read) > _MOST_BYTES:
                    raise AnswerError(f"the answer is longer than {_MOST_BYTES} bytes")
        if answer.status_code in (401, 403):  # the token may have been changed
            await self._drop((target.namespace, source))
        return read_answer(answer.status_code, read.decode(errors="replace"))

    async def _client(self, source: Prometheus, namespace: str) -> httpx.AsyncClient:
        key = (namespace, source)
        known = self._ready.get(key)
        if known and self._clock() - known.since < _KEPT_SECONDS:
            return known.client
        headers = {each.name: each.value for each in source.headers}
        if source.bearer_token:
            wanted = source.bearer_token
            token = await self._read("Secret", namespace, wanted.secret_name, wanted.key)
            headers["Authorization"] = f"Bearer {token.strip()}"
        trusted = await self._trusted(source.ca, namespace)
        client = httpx.AsyncClient(headers=headers, verify=trusted, timeout=_ASK)
        await self._drop(key)
        self._ready[key] = _Ready(source, client, self._clock())
        return client

    async def _trusted(self, ca: Authorities | None, namespace: str) -> ssl.SSLContext:
        if ca is None:
            return ssl.create_default_context()
        kind, name = ("ConfigMap", ca.config_map_name) if ca.config_map_name else ("Secret", ca.secret_name or "")
        pem = await self._read(kind, namespace, name, ca.key)
        try:
            return ssl.create_default_context(cadata=pem)
        except ssl.SSLError as error:
            raise SettingsError(f"{kind} {name} has no certificate under `{ca.key}`") from error

    async def _read(self, kind: str, namespace: str, name: str, key: str) -> str:
        """One text. A ConfigMap is looked for by name, since we may list them; a Secret is got, if we were let."""
        ref = Ref(kind, namespace, name)
        try:
            found = await (self._cluster.named(ref) if kind == "ConfigMap" else self._cluster.read(ref))
        except RefusedError as error:
            raise SettingsError(_ROLE.format(name=name, namespace=namespace)) from error
        except ClusterError as error:
            raise SettingsError(f"{ref} cannot be read: {error}") from error
        if found is None:
            raise SettingsError(f"{ref} is not there: make it, or correct the field of `slo.source.prometheus`")
        text = _text(found, key)
        if text is None:
            raise SettingsError(f"{ref} has no key `{key}`")
        return text

    async def _drop(self, key: tuple[str, Prometheus]) -> None:
        known = self._ready.pop(key, None)
        if known:
            await known.client.aclose()


_ROLE = (
    "the operator may not read Secret {name}: make a Role in namespace {namespace} with `apiGroups: ['']`, `resources:"
    " [secrets]`, `resourceNames: [{name}]`, `verbs: [get]`, and bind it to the operator's service account"
)


class EitherSource:
    """The one that a pipeline names."""

    def __init__(self, pods: Source, prometheus: Source) -> None:
        self._pods = pods
        self._prometheus = prometheus

    async def read(self, target: Target) -> Told:
        """All pods at once."""
        asked = target.slo.source.prometheus if target.slo.source else None
        return await (self._prometheus if asked else self._pods).read(target)


def _text(found: Mapping[str, Any], key: str) -> str | None:
    value = (found.get("data") or {}).get(key)
    if value is None or found["kind"] == "ConfigMap":
        return value
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _counters(found: Mapping[Any, Any], target: Target, uid: str) -> Counters:
    return readings(found, target.slo.objectives, target.revisions.get(uid, ""))


def _missing(source: Prometheus, pods: list[str]) -> str:
    if not pods:
        return ""
    return (
        f"Prometheus at {source.url} has no sample of the last {source.stale_seconds} s of pod {named(pods)}: let it"
        " scrape port 8001, with the labels `namespace` and `pod`"
    )
