"""A namespace of a real API server, where the operator's own code makes its passes."""

import asyncio
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import worlds
from api_server import ApiServer
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from tailhold_api import names
from tailhold_api.status import Condition
from tailhold_operator.cluster import KubernetesCluster
from tailhold_operator.kinds import CHILD_KINDS, Manifest, Ref, path_of
from tailhold_operator.parsing import read_status
from tailhold_operator.reconcile import World, reconcile
from tailhold_operator.render.config import LABEL_DIGEST
from tailhold_operator.sampling import Sampler
from tailhold_operator.testing import FakeClock, FakeCluster, FakePods, Killed
from tailhold_operator.watch.rounds import Watch
from tailhold_operator.watch.sources import PodSource

RESULT = '{"snapshot":"' + "5" * 64 + '","documents":3,"failedDocuments":0,"chunks":9}'


class Place:
    """A namespace of a real API server, with kubelet's part played by hand."""

    def __init__(
        self, cluster: KubernetesCluster, admin: httpx.AsyncClient, namespace: str, name: str = worlds.NAME
    ) -> None:
        self.cluster = cluster
        self.admin = admin
        self.namespace = namespace
        self.key = Ref(names.KIND, namespace, name)
        self.pods = SilentPods()

    @property
    def world(self) -> World:
        return World(
            cluster=self.cluster,
            pods=self.pods,
            setup=worlds.SETUP,
            public_key=lambda: "{}",
            now=lambda: datetime.now(UTC),
            sampler=Sampler(),
            watch=Watch(PodSource(self.pods), lambda: datetime.now(UTC), time.monotonic),
            log=lambda *_: None,
        )

    async def step(self) -> None:
        await reconcile(self.world, self.key)

    async def live(self) -> None:
        """Some looks; an operator that dies is followed by another."""
        for _ in range(6):
            with suppress(Killed):
                await self.step()

    def beside(self, name: str) -> "Place":
        """Another pipeline of the namespace."""
        return Place(self.cluster, self.admin, self.namespace, name)

    async def put(self, body: dict[str, Any]) -> None:
        answer = await self.applied(body)
        assert answer.is_success, answer.text

    async def applied(self, body: dict[str, Any], **query: str) -> httpx.Response:
        """What the API server says to an apply."""
        manifest = worlds.pipeline(body, self.key.name)
        manifest["metadata"]["namespace"] = self.namespace
        query = {"fieldManager": "user", "force": "true", **query}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return await self.admin.patch(self.path(), json=manifest, params=query, headers=headers)

    def path(self, *more: str) -> str:
        return path_of(names.KIND, self.namespace, self.key.name, *more)

    async def conditions(self) -> dict[str, Condition]:
        return {each.type: each for each in read_status(await self.pipeline()).conditions}

    async def deployed(self) -> bool:
        return any(name.startswith("Deployment/") for name in await self.children())

    async def pipeline(self) -> Manifest:
        found = await self.cluster.read(self.key)
        assert found is not None
        return found

    async def children(self) -> dict[str, Manifest]:
        uid = (await self.pipeline())["metadata"]["uid"]
        labels = f"{names.LABEL_PIPELINE_UID}={uid}"
        found = [each for kind in CHILD_KINDS for each in await self.cluster.find(kind, self.namespace, labels)]
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}

    async def quiet(self) -> dict[str, str]:
        """Versions once the controllers around have written what they had to."""
        before: dict[str, str] = {}
        for _ in range(20):
            now = await self.versions()
            if now == before:
                return now
            before = now
            await asyncio.sleep(0.5)
        raise AssertionError("never quiet")

    async def versions(self) -> dict[str, str]:
        everything = await self.children() | {"pipeline": await self.pipeline()}
        return {name: each["metadata"]["resourceVersion"] for name, each in everything.items()}

    async def build(self) -> None:
        """Play kubelet: the pods of both Jobs end well."""
        inspected = await self.until(lambda: self._running_pod(names.LABEL_INSPECTION))
        digest = inspected["metadata"]["labels"][names.LABEL_INSPECTION]
        configs = [each for each in (await self.children()).values() if worlds.is_inspected(each)]
        config = next(each for each in configs if each["metadata"]["labels"][LABEL_DIGEST] == digest)
        await self._end(inspected, names.LABEL_INSPECTION, worlds.found(config))
        await self.live()
        built = await self.until(lambda: self._running_pod(names.LABEL_BUILD))
        await self._end(built, names.LABEL_BUILD, RESULT)

    async def _end(self, pod: Manifest, label: str, message: str) -> None:
        ended = {
            "exitCode": 0,
            "message": message,
            "reason": "Completed",
            "finishedAt": "2026-01-01T00:00:00Z",
        }
        container = {"name": "index", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [container | {"state": {"terminated": ended}}]}
        await self.patch_status(pod, status)
        await self.until(lambda: self._complete(label, pod["metadata"]["labels"][label]))

    async def patch_status(self, pod: Manifest, status: Manifest) -> None:
        path = path_of("Pod", self.namespace, pod["metadata"]["name"], "status")
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = await self.admin.patch(path, json={"status": status}, headers=headers)
        assert answer.is_success, answer.text

    async def _running_pod(self, label: str) -> Manifest | None:
        found = [each for each in (await self.children()).values() if each["kind"] == "Pod"]
        running = (each for each in found if each["status"]["phase"] != "Succeeded")
        return next((each for each in running if label in each["metadata"]["labels"]), None)

    async def _complete(self, label: str, digest: str) -> Manifest | None:
        found = [each for each in (await self.children()).values() if each["kind"] == "Job"]
        jobs = [each for each in found if each["metadata"]["labels"].get(label) == digest]
        done = (each for each in jobs for c in each["status"].get("conditions", ()) if c["type"] == "Complete")
        return next(done, None)

    @staticmethod
    async def until(look: Callable[[], Awaitable[Manifest | None]]) -> Manifest:
        for _ in range(150):
            found = await look()
            if found:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError("it never came")


class SilentPods(FakePods):
    """No pod runs here, so none answers."""

    def __init__(self) -> None:
        super().__init__(FakeCluster(FakeClock()))

    async def report(self, pod: Any) -> None:
        return None


@pytest.fixture
async def place(api: ApiServer) -> AsyncIterator[Place]:
    namespace = f"n{uuid.uuid4().hex[:12]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    settings = Configuration()
    await config.load_kube_config(str(api.kubeconfig), client_configuration=settings)
    headers = {"Authorization": "Bearer test-token"}
    async with (
        ApiClient(settings) as client,
        httpx.AsyncClient(
            base_url=api.url,
            verify=ssl.create_default_context(cafile=str(api.ca)),
            headers=headers,
            timeout=30,
        ) as admin,
    ):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        (await admin.post("/api/v1/namespaces", json=body)).raise_for_status()
        yield Place(KubernetesCluster(client), admin, namespace)
