"""Edits of a pipeline on a real API server: what it takes, what it says, and what the operator makes of it."""

import httpx
from kstatus import kstatus
from places import Place
from spec_edits import every_field_edit
from spec_examples import MINIMAL, merged

from tailhold_operator.kinds import path_of

MERGE = {"Content-Type": "application/merge-patch+json"}


async def scaled(place: Place, replicas: int) -> httpx.Response:
    """As an autoscaler does it."""
    body = {"spec": {"replicas": replicas}}
    return await place.admin.patch(place.path("scale"), json=body, params={"fieldManager": "hpa"}, headers=MERGE)


async def classes(place: Place) -> None:
    """What pods of the edit name and the API server wants to be there."""
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "other"}
    for path, body in (("scheduling.k8s.io/v1/priorityclasses", priority), ("node.k8s.io/v1/runtimeclasses", runtime)):
        made = await place.admin.post(f"/apis/{path}", json=body | {"metadata": {"name": "other"}})
        assert made.status_code in (201, 409), made.text
    account = {"metadata": {"name": "other"}}
    (await place.admin.post(path_of("ServiceAccount", place.namespace), json=account)).raise_for_status()


async def replicas(place: Place) -> int:
    return int((await place.pipeline())["spec"]["replicas"])


async def test_all_fields_may_change_at_once_and_back(place: Place) -> None:
    """No child has a field that may not change: each part has children of its own."""
    whole = every_field_edit(merged(MINIMAL, {"replicas": 2}))
    whole.pop("paused", None)
    await classes(place)
    for body in (MINIMAL, whole, MINIMAL):
        await place.put(body)
        await place.step()
        if body is not MINIMAL or not await place.deployed():
            await place.build()
        for _ in range(2):
            await place.step()
        conditions = await place.conditions()
        assert conditions["Accepted"].status == "True"
        assert "Stalled" not in conditions, conditions["Stalled"]
        assert await place.deployed()


async def test_replicas_left_out_stay_an_autoscalers(place: Place) -> None:
    """C35: a manifest without `replicas`, applied again, leaves the autoscaler's number."""
    await place.put(MINIMAL)
    assert await replicas(place) == 1
    assert (await scaled(place, 5)).is_success
    await place.put(merged(MINIMAL, {"retrieval": {"topK": 3}}))
    assert await replicas(place) == 5


async def test_replicas_taken_out_after_the_autoscaler_set_them_stay_its_own(place: Place) -> None:
    await place.put(merged(MINIMAL, {"replicas": 3}))
    assert (await scaled(place, 5)).is_success
    await place.put(MINIMAL)
    assert await replicas(place) == 5


async def test_replicas_taken_out_while_nobody_else_set_them_are_the_default(place: Place) -> None:
    """As the field says: the autoscaler first, then the manifest."""
    await place.put(merged(MINIMAL, {"replicas": 3}))
    await place.put(MINIMAL)
    assert await replicas(place) == 1


async def test_an_autoscaler_cannot_go_beyond_the_bounds(place: Place) -> None:
    await place.put(MINIMAL)
    refused = await scaled(place, 2000)
    assert (refused.status_code, "less than or equal to 1000" in refused.text) == (422, True)


async def test_a_pipeline_that_nobody_looked_at_passes_for_no_finished_one(place: Place) -> None:
    """kstatus takes an object without a status for a finished one; the schema's default says that it is not."""
    await place.put(MINIMAL)
    made = await place.pipeline()
    assert (made["status"]["observedGeneration"], kstatus(made)) == (-1, "InProgress")
    await place.step()
    seen = await place.pipeline()
    assert seen["status"]["observedGeneration"] == seen["metadata"]["generation"]
