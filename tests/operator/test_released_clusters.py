"""An upgrade of the operator alone: it takes over what the one of each release left."""

import copy

import pytest
from released_clusters import upgraded
from releases import versions
from worlds import NAME, NAMESPACE, Stage, spec

from tailhold_api import names
from tailhold_operator.kinds import Ref
from tailhold_operator.parsing import read_history
from tailhold_operator.render.identity import identity_of


@pytest.fixture(params=versions())
def stage(request: pytest.FixtureRequest) -> Stage:
    return upgraded(request.param)


def pods(stage: Stage) -> dict[str, str]:
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in stage.cluster.of_kind("Pod")}


def test_no_pod_is_restarted_and_no_index_is_built(stage: Stage) -> None:
    deployments, before, stable = (
        copy.deepcopy(stage.cluster.of_kind("Deployment")),
        pods(stage),
        stage.status()["stable"],
    )
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")
    assert [each["spec"] for each in stage.cluster.of_kind("Deployment")] == [each["spec"] for each in deployments]
    assert pods(stage) == before
    assert stage.status()["stable"]["name"] == stable["name"]
    assert not [write for write in stage.cluster.writes if write.startswith(("apply Job", "apply Deployment"))]


def test_what_was_remembered_is_understood(stage: Stage) -> None:
    pipeline = stage.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]
    history = read_history(stage.cluster.objects[Ref("ConfigMap", NAMESPACE, identity_of(pipeline).child("history"))])
    assert history.spec is not None
    assert [len(history.revisions), len(history.snapshots), len(history.ended)] == [2, 1, 1]


def test_the_revision_before_the_upgrade_is_still_the_way_back(stage: Stage) -> None:
    before = stage.status()["ended"][0]["name"]
    stage.settle()
    stage.put(spec())
    stage.settle()
    assert (stage.condition("Ready")[0], stage.status()["stable"]["name"]) == ("True", before)
    (deployment,) = stage.cluster.of_kind("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/tailhold/server:1", "as it was proven"
    assert not [write for write in stage.cluster.writes if write.startswith("apply Job")]
