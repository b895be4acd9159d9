"""Whose account pods have: one of ours, or the one that the spec names."""

from typing import Any

import pytest
from worlds import NAME, NAMESPACE, Stage, spec

from tailhold_api import names
from tailhold_operator.kinds import Manifest, Ref, is_owned_by

OURS = Ref("ServiceAccount", NAMESPACE, NAME)


def stage(**pod: Any) -> Stage:
    made = Stage()
    made.put(spec(pod=pod))
    made.settle()
    return made


def accounts(served: Stage) -> set[str]:
    """Of the pods of Deployments and Jobs."""
    owners = (*served.cluster.of_kind("Deployment"), *served.cluster.of_kind("Job"))
    return {each["spec"]["template"]["spec"]["serviceAccountName"] for each in owners}


def theirs(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


def test_a_given_account_is_used_by_all_pods_and_none_is_made() -> None:
    served = stage(serviceAccountName="models")
    assert accounts(served) == {"models"}
    assert served.cluster.of_kind("ServiceAccount") == []
    assert served.condition("Ready")[0] == "True"


def test_ours_goes_with_the_last_pods_that_had_it() -> None:
    served = stage()
    assert OURS in served.cluster.objects
    before = served.served()
    served.put(spec(pod={"serviceAccountName": "models"}))
    while served.served() == before:
        assert OURS in served.cluster.objects
        served.step()
        served.controllers.run()
        served.clock.pass_by(seconds=5)
    served.settle()
    assert served.condition("Ready")[0] == "True"
    assert OURS not in served.cluster.objects


def test_ours_comes_back_when_none_is_given_any_more() -> None:
    served = stage(serviceAccountName="models")
    served.put(spec())
    served.settle()
    assert OURS in served.cluster.objects
    assert served.condition("Ready")[0] == "True"


@pytest.mark.parametrize("given", [NAME, "models"])
def test_somebodys_account_of_our_name_is_no_conflict_where_one_is_given(given: str) -> None:
    made = Stage()
    made.cluster.put(theirs(NAME))
    made.put(spec(pod={"serviceAccountName": given}))
    made.settle()
    assert made.condition("Ready")[0] == "True"
    uid = made.cluster.objects[Ref(names.KIND, NAMESPACE, NAME)]["metadata"]["uid"]
    assert not is_owned_by(made.cluster.objects[OURS], uid)


def test_ours_stays_where_it_is_given_by_its_name() -> None:
    served = stage()
    served.put(spec(pod={"serviceAccountName": NAME}))
    served.settle()
    assert OURS in served.cluster.objects
    assert served.condition("Ready")[0] == "True"


def test_what_is_asked_of_pods_builds_no_index() -> None:
    served = stage()
    built = {each["metadata"]["uid"] for each in served.cluster.of_kind("Job")}
    served.put(spec(pod={"env": [{"name": "A", "value": "1"}], "labels": {"team": "risk"}}))
    served.settle()
    assert served.condition("Ready")[0] == "True"
    assert {each["metadata"]["uid"] for each in served.cluster.of_kind("Job")} == built
