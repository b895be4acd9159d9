"""The API server, as the operator needs it."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
from kubernetes.aio.client import ApiClient

from tailhold_api import names
from tailhold_operator.errors import ClusterError, ConflictError, RefusedError, UnavailableError
from tailhold_operator.kinds import KINDS, Manifest, Ref, path_of, ref_of

_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_NOT_FOUND, _CONFLICT, _INVALID, _TOO_MANY = 404, 409, 422, 429


class Cluster(Protocol):
    """What can be asked of an API server. Every failure is a `ClusterError`."""

    async def read(self, ref: Ref) -> Manifest | None:
        """One object, as it is now."""

    async def find(self, kind: str, namespace: str, labels: str) -> tuple[Manifest, ...]:
        """Objects by label, as they are now."""

    async def named(self, ref: Ref) -> Manifest | None:
        """One object by its name, for kinds that may be listed and not be got."""

    async def warnings(self, namespace: str, uid: str) -> tuple[Manifest, ...]:
        """The Events that warn of one object."""

    async def pipelines(self, namespace: str | None) -> tuple[Manifest, ...]:
        """All RagPipelines."""

    async def apply(self, manifest: Manifest, uid: str) -> None:
        """Make an object so. With a UID it has to be that very object; without one it is made."""

    async def merge(self, ref: Ref, uid: str, change: Manifest) -> None:
        """Change of that very object only what is named; a null takes away."""

    async def delete(self, ref: Ref, uid: str) -> None:
        """Take that very object away, and what hangs on it. Gone already is fine."""

    async def apply_status(self, pipeline: Manifest, status: Manifest) -> None:
        """Make the status of a RagPipeline so."""

    async def create(self, manifest: Manifest) -> bool:
        """Make an object; False where one of the name is there already."""

    async def replace(self, manifest: Manifest) -> None:
        """Put an object in the place of the one of the same resourceVersion."""


class KubernetesCluster:
    """A real one. Reads are fresh: no resourceVersion is ever asked for."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def read(self, ref: Ref) -> Manifest | None:
        """One object, as it is now."""
        try:
            return await self._ask("GET", path_of(ref.kind, ref.namespace, ref.name)) | _head(ref.kind)
        except _MissingError:
            return None

    async def find(self, kind: str, namespace: str, labels: str) -> tuple[Manifest, ...]:
        """Objects by label, as they are now."""
        return await self._list(kind, namespace, {"labelSelector": labels})

    async def named(self, ref: Ref) -> Manifest | None:
        """One object by its name, for kinds that may be listed and not be got."""
        found = await self._list(ref.kind, ref.namespace, {"fieldSelector": f"metadata.name={ref.name}"})
        return found[0] if found else None

    async def warnings(self, namespace: str, uid: str) -> tuple[Manifest, ...]:
        """The Events that warn of one object."""
        return await self._list("Event", namespace, {"fieldSelector": f"involvedObject.uid={uid},type=Warning"})

    async def pipelines(self, namespace: str | None) -> tuple[Manifest, ...]:
        """All RagPipelines."""
        return await self._list(names.KIND, namespace)

    async def apply(self, manifest: Manifest, uid: str) -> None:
        """Make an object so: by server-side apply, and by force only where it is known to be ours."""
        ref = ref_of(manifest)
        force = {"force": "true"} if uid else {}
        body = manifest | {"metadata": manifest["metadata"] | ({"uid": uid} if uid else {})}
        query = {"fieldManager": names.FIELD_MANAGER, **force}
        await self._ask("PATCH", path_of(ref.kind, ref.namespace, ref.name), query, body, _APPLY)

    async def merge(self, ref: Ref, uid: str, change: Manifest) -> None:
        """Change of that very object only what is named; a null takes away."""
        body = change | {"metadata": change.get("metadata", {}) | {"uid": uid}}
        query = {"fieldManager": names.FIELD_MANAGER}
        await self._ask("PATCH", path_of(ref.kind, ref.namespace, ref.name), query, body, _MERGE)

    async def delete(self, ref: Ref, uid: str) -> None:
        """Take that very object away, and what hangs on it."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._ask("DELETE", path_of(ref.kind, ref.namespace, ref.name), body=body)
        except _MissingError:
            return

    async def apply_status(self, pipeline: Manifest, status: Manifest) -> None:
        """Make the status of a RagPipeline so."""
        metadata = pipeline["metadata"]
        body = _head(names.KIND) | {
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "status": status,
        }
        path = path_of(names.KIND, metadata["namespace"], metadata["name"], "status")
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        try:
            await self._ask("PATCH", path, query, body, _APPLY)
        except _MissingError:
            return

    async def create(self, manifest: Manifest) -> bool:
        """Make an object; False where one of the name is there already."""
        ref = ref_of(manifest)
        query = {"fieldManager": names.FIELD_MANAGER}
        try:
            await self._ask("POST", path_of(ref.kind, ref.namespace), query, manifest)
        except ConflictError:
            return False
        return True

    async def replace(self, manifest: Manifest) -> None:
        """Put an object in the place of the one of the same resourceVersion."""
        ref = ref_of(manifest)
        query = {"fieldManager": names.FIELD_MANAGER}
        await self._ask("PUT", path_of(ref.kind, ref.namespace, ref.name), query, manifest)

    async def _list(
        self, kind: str, namespace: str | None, query: Mapping[str, str] | None = None
    ) -> tuple[Manifest, ...]:
        found = await self._ask("GET", path_of(kind, namespace), query)
        return tuple(each | _head(kind) for each in found.get("items") or ())

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        timeout = aiohttp.ClientTimeout(total=_READ_SECONDS, sock_connect=_CONNECT_SECONDS)
        call = await self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._client.call_api(*call, _request_timeout=timeout)
            text = await answer.response.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {type(error).__name__}: {error}") from error
        if answer.status >= 400:
            raise _failure(answer.status, f"{method} {path}: {answer.status}: {_words(text)}")
        return dict(json.loads(text))


class _MissingError(ClusterError):
    """There is no such object."""


def _failure(status: int, text: str) -> ClusterError:
    if status == _NOT_FOUND:
        return _MissingError(text)
    if status == _CONFLICT or (status == _INVALID and "metadata.uid:" in text):
        return ConflictError(text)
    if status == _TOO_MANY or status >= 500:
        return UnavailableError(text)
    return RefusedError(text)


def _words(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]


def _head(kind: str) -> Manifest:
    """Lists leave these out of their items."""
    return {"apiVersion": KINDS[kind].api_version, "kind": kind}
