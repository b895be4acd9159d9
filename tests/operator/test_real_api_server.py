"""The operator's writes against a real API server: schemas, defaults, ownership, garbage collection."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import worlds
import yaml
from places import Place
from status_examples import full_status

from tailhold_api import names
from tailhold_api.status import Status
from tailhold_operator.cluster import KubernetesCluster
from tailhold_operator.errors import ConflictError
from tailhold_operator.kinds import Manifest, Ref, path_of
from tailhold_operator.parsing import read_status
from tailhold_operator.summarise import status_body
from tailhold_operator.testing import Killed


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
    before = await place.quiet()
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
