"""The operator's writes against a real API server: schemas, defaults, ownership, garbage collection."""

import asyncio
import ssl
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import worlds
import yaml
from api_server import ApiServer
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from tailhold_api import names
from tailhold_api.status import (
    Condition,
    Ended,
    FieldChange,
    Progress,
    RevisionStatus,
    SnapshotStatus,
    Status,
)
from tailhold_operator.cluster import KubernetesCluster
from tailhold_operator.errors import ConflictError
from tailhold_operator.kinds import CHILD_KINDS, Manifest, Ref, path_of
from tailhold_operator.parsing import read_status
from tailhold_operator.reconcile import World, reconcile
from tailhold_operator.sampling import Sampler
from tailhold_operator.summarise import status_body
from tailhold_operator.testing import FakeClock, FakeCluster, FakePods, Killed

RESULT = '{"snapshot":"' + "5" * 64 + '","documents":3,"failedDocuments":0,"chunks":9}'


class Place:
    """A namespace of a real API server, with kubelet's part played by hand."""

    def __init__(self, cluster: KubernetesCluster, admin: httpx.AsyncClient, namespace: str) -> None:
        self.cluster = cluster
        self.admin = admin
        self.namespace = namespace
        self.key = Ref(names.KIND, namespace, worlds.NAME)
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
            log=lambda *_: None,
        )

    async def step(self) -> None:
        await reconcile(self.world, self.key)

    async def live(self) -> None:
        """Some looks; an operator that dies is followed by another."""
        for _ in range(6):
            with suppress(Killed):
                await self.step()

    async def put(self, body: dict[str, Any]) -> None:
        manifest = worlds.pipeline(body)
        manifest["metadata"]["namespace"] = self.namespace
        path = path_of(names.KIND, self.namespace, worlds.NAME)
        query = {"fieldManager": "user", "force": "true"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        answer = await self.admin.patch(path, json=manifest, params=query, headers=headers)
        assert answer.is_success, answer.text

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
        config = next(each for each in (await self.children()).values() if worlds.is_inspected(each))
        await self._end(names.LABEL_INSPECTION, worlds.found(config))
        await self._end(names.LABEL_BUILD, RESULT)

    async def _end(self, label: str, message: str) -> None:
        pod = await self.until(lambda: self._job_pod(label))
        ended = {
            "exitCode": 0,
            "message": message,
            "reason": "Completed",
            "finishedAt": "2026-01-01T00:00:00Z",
        }
        container = {"name": "index", "image": "i", "imageID": "i", "ready": False, "restartCount": 0}
        status = {"phase": "Succeeded", "containerStatuses": [container | {"state": {"terminated": ended}}]}
        await self.patch_status(pod, status)
        await self.until(lambda: self._job_complete(label))

    async def patch_status(self, pod: Manifest, status: Manifest) -> None:
        path = path_of("Pod", self.namespace, pod["metadata"]["name"], "status")
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = await self.admin.patch(path, json={"status": status}, headers=headers)
        assert answer.is_success, answer.text

    async def _job_pod(self, label: str) -> Manifest | None:
        found = [each for each in (await self.children()).values() if each["kind"] == "Pod"]
        return next((each for each in found if label in each["metadata"]["labels"]), None)

    async def _job_complete(self, label: str) -> Manifest | None:
        found = [each for each in (await self.children()).values() if each["kind"] == "Job"]
        jobs = [each for each in found if label in each["metadata"]["labels"]]
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


async def test_a_second_look_writes_nothing(place: Place) -> None:
    """C15: all that is compared comes back from the API server as it was sent, defaults and all."""
    await place.put(worlds.spec())
    await place.step()
    await place.build()
    for _ in range(3):
        await place.step()
        await asyncio.sleep(0.5)
    before = await place.quiet()
    for _ in range(3):
        await place.step()
    assert await place.versions() == before
    kinds = {name.partition("/")[0] for name in before}
    assert kinds >= {"ConfigMap", "Deployment", "Job", "Service", "ServiceAccount", "PodDisruptionBudget"}


async def test_a_company_s_pods_wait_for_their_account_and_are_written_once(place: Place, golden: Path) -> None:
    """C15, with every field of `pod` and `affinity`; an account that is given is not made, and missed by its name."""
    await place.put(yaml.safe_load((golden / "corporate" / "in.yaml").read_text())["spec"])

    async def missed() -> Manifest | None:
        await place.step()
        told = [each.message for each in read_status(await place.pipeline()).conditions]
        return {"found": True} if any('serviceaccount "handbook-reader" not found' in each for each in told) else None

    await place.until(missed)
    account = {"metadata": {"name": "handbook-reader"}}
    (await place.admin.post(path_of("ServiceAccount", place.namespace), json=account)).raise_for_status()
    await place.build()
    await place.live()
    await asyncio.sleep(0.5)
    await place.live()
    before = await place.versions()
    await place.live()
    assert await place.versions() == before
    kinds = {name.partition("/")[0] for name in before}
    assert "Deployment" in kinds
    assert "ServiceAccount" not in kinds


async def test_what_is_taken_away_goes_and_what_others_added_stays(place: Place) -> None:
    """C19."""
    ref = Ref("ServiceAccount", place.namespace, "one")

    def account(annotations: dict[str, str]) -> Manifest:
        metadata = {"name": ref.name, "namespace": ref.namespace, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}

    await place.cluster.apply(account({"ours": "1", "also-ours": "1"}), "")
    headers = {"Content-Type": "application/merge-patch+json"}
    path = path_of(ref.kind, ref.namespace, ref.name)
    body = {"metadata": {"annotations": {"theirs": "1"}}}
    (await place.admin.patch(path, json=body, headers=headers)).raise_for_status()
    found = await place.cluster.named(ref)
    assert found is not None
    await place.cluster.apply(account({"ours": "2"}), found["metadata"]["uid"])
    after = await place.cluster.named(ref)
    assert after is not None
    assert after["metadata"]["annotations"] == {"ours": "2", "theirs": "1"}


async def test_an_object_that_is_not_the_one_that_was_meant_is_not_touched(place: Place) -> None:
    """C16, P4: another UID, and a name that was taken in between."""
    head = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "one", "namespace": place.namespace},
    }
    ref = Ref("ConfigMap", place.namespace, "one")
    assert await place.cluster.create(head | {"data": {"a": "theirs"}})
    assert not await place.cluster.create(head | {"data": {"a": "again"}})
    with pytest.raises(ConflictError):
        await place.cluster.apply(head | {"data": {"a": "ours"}}, "")
    with pytest.raises(ConflictError):
        await place.cluster.apply(head | {"data": {"a": "ours"}}, "00000000-0000-4000-8000-000000000000")
    with pytest.raises(ConflictError):
        await place.cluster.delete(ref, "00000000-0000-4000-8000-000000000000")
    found = await place.cluster.named(ref)
    assert found is not None
    assert found["data"] == {"a": "theirs"}
    await place.cluster.delete(ref, found["metadata"]["uid"])
    await place.cluster.delete(ref, found["metadata"]["uid"])
    assert await place.cluster.named(ref) is None


async def test_every_field_of_the_status_is_kept(place: Place) -> None:
    """C14: what the schema does not declare would vanish, and be written again at each look."""
    await place.put(worlds.spec())
    whole = full_status()
    await place.cluster.apply_status(await place.pipeline(), status_body(whole))
    assert read_status(await place.pipeline()) == whole
    bare = Status(observed_generation=2)
    await place.cluster.apply_status(await place.pipeline(), status_body(bare))
    assert read_status(await place.pipeline()) == bare


async def test_a_foreign_service_of_the_name_stops_everything_before_it_begins(place: Place) -> None:
    """C16, C105: a Service called like the pipeline."""
    body = {"metadata": {"name": worlds.NAME}, "spec": {"ports": [{"port": 80}]}}
    (await place.admin.post(path_of("Service", place.namespace), json=body)).raise_for_status()
    await place.put(worlds.spec())
    for _ in range(3):
        await place.step()
    conditions = {each.type: each for each in read_status(await place.pipeline()).conditions}
    assert (conditions["Accepted"].status, conditions["Accepted"].reason) == ("False", "NameConflict")
    assert not [name for name in await place.children() if name.startswith(("Deployment/", "Job/"))]


async def test_a_child_that_lost_its_labels_is_found_by_its_owner(place: Place) -> None:
    await place.put(worlds.spec())
    for _ in range(3):
        await place.step()
    path, name = path_of("ConfigMap", place.namespace), f"{worlds.NAME}-history"
    before = (await place.admin.get(f"{path}/{name}")).raise_for_status().json()
    patch = {"metadata": {"labels": {names.LABEL_PIPELINE_UID: None}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    (await place.admin.patch(f"{path}/{name}", json=patch, headers=merge)).raise_for_status()
    for _ in range(2):
        await place.step()
    after = (await place.admin.get(f"{path}/{name}")).raise_for_status().json()
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert (after["data"], after["metadata"]["uid"]) == (before["data"], before["metadata"]["uid"])
    version = after["metadata"]["resourceVersion"]
    await place.step()
    again = (await place.admin.get(f"{path}/{name}")).raise_for_status().json()
    assert again["metadata"]["resourceVersion"] == version


@pytest.mark.long
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(13))
async def test_a_killed_operator_leaves_nothing_undone_and_nothing_twice(
    place: Place, kill_at: int, moment: str
) -> None:
    real = place.cluster
    place.cluster = cast("KubernetesCluster", Mortal(real, kill_at, moment))
    await place.put(worlds.spec())
    await place.live()
    await place.build()
    await place.live()
    kinds = Counter(name.partition("/")[0] for name in await place.children())
    assert {kind: kinds[kind] for kind in ("Deployment", "Job", "Service", "ServiceAccount")} == dict.fromkeys(
        ("Deployment", "Job", "Service", "ServiceAccount"), 1
    )
    assert kinds["ConfigMap"] == 6
    before = await place.quiet()
    await place.step()
    assert await place.versions() == before


class Mortal:
    """A cluster at whose n-th write the operator dies, once."""

    def __init__(self, cluster: KubernetesCluster, kill_at: int, moment: str) -> None:
        self._cluster = cluster
        self._left = kill_at
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        return self._killing(method) if name in ("apply", "delete", "apply_status", "create") else method

    def _killing(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def write(*given: Any) -> Any:
            self._left -= 1
            if self._left == -1 and self._moment == "before":
                raise Killed
            answer = await method(*given)
            if self._left == -1:
                raise Killed
            return answer

        return write


def full_status() -> Status:
    revision = RevisionStatus(
        name="a-b",
        pod_digest="a" * 64,
        content_digest="b" * 64,
        snapshot="c" * 64,
        image="i",
        ready_replicas=2,
    )
    condition = Condition(
        type="Ready", status="True", observed_generation=1, last_transition_time="2026-01-01T00:00:00Z",
        reason="Reconciled", message="m",
    )  # fmt: skip
    return Status(
        observed_generation=1,
        conditions=(condition, condition.model_copy(update={"type": "Accepted"})),
        stable=revision,
        candidate=revision.model_copy(update={"name": "c-d"}),
        weight_percent=5,
        p99_milliseconds=120,
        replicas=2,
        ready_replicas=1,
        replicas_text="1/2",
        selector="a=b",
        snapshot=SnapshotStatus(digest="d", build="e", documents=1, failed_documents=2, chunks=3),
        progress=Progress(step="embed", done=1, total=2, unit="chunks", eta_seconds=3),
        last_change=(FieldChange(path="retrieval.topK", field_class="live"),),
        phases={"weights": 1},
        url="http://a.b.svc/v1",
        ended=(Ended(name="x", reason="Replaced", at="2026-01-01T00:00:00Z"),),
    )
