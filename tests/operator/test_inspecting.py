"""Before a pod starts: what an inspection Job found decides whether it may."""

import json
from typing import Any

import pytest
from worlds import Stage, spec

from tailhold_api import names
from tailhold_operator.kinds import label_of
from tailhold_operator.testing import Fate

GENERATOR = {
    "layers": 32,
    "hidden": 4096,
    "intermediate": 14336,
    "heads": 32,
    "keyValueNumbers": 2048,
    "keyValueHeads": 8,
    "vocabulary": 128256,
    "contextTokens": 8192,
    "dtype": "bfloat16",
    "parameters": 8_030_261_248,
    "weightBytes": 16_060_522_496,
}
EMBEDDER = {"dimension": 384, "intermediate": 1536, "contextTokens": 512, "parameters": 22_713_728}
FOUND = {"generator": GENERATOR, "embedder": EMBEDDER, "vllm": "0.32.0"}
TOO_LONG = {"engine": {"maxModelTokens": 16384, "kvCacheMebibytes": 8192}}


def card(memory: int = 40960) -> dict[str, Any]:
    return {"placement": {"gpu": {"memoryMebibytes": memory}}}


def stage_with(**found: Any) -> Stage:
    stage = Stage()
    stage.controllers.found = {**FOUND, **found}
    return stage


def inspections(stage: Stage) -> list[str]:
    jobs = stage.cluster.of_kind("Job")
    return [each["metadata"]["name"] for each in jobs if label_of(each, names.LABEL_INSPECTION)]


@pytest.fixture
def served() -> Stage:
    """A pipeline that was inspected and serves."""
    stage = stage_with()
    stage.put(spec(**card()))
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")
    return stage


def test_no_pod_is_started_before_the_inspection_has_ended() -> None:
    stage = stage_with()
    stage.controllers.inspects = False
    stage.put(spec(**card()))
    stage.run(seconds=60)
    assert stage.condition("Accepted") == ("False", "Inspecting")
    assert stage.condition("Ready") == ("False", "Inspecting")
    assert stage.condition("IndexLoaded") == ("False", "Inspecting")
    assert (stage.deployments(), len(inspections(stage))) == ({}, 1)
    assert len(stage.cluster.of_kind("Job")) == 1, "no index is built for models that may not be there"
    assert not stage.described("Stalled")
    stage.controllers.inspects = True
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")


def test_the_sums_are_in_accepted_and_in_the_status_line_by_line(served: Stage) -> None:
    message = served.described("Accepted")["message"]
    assert "memory of each GPU:" in message
    assert "of 40,960 MiB" in message
    assert any(line.endswith("weights (8,030,261,248 parameters, bfloat16)") for line in message.splitlines())
    gpu, host = served.status()["memory"]
    assert (gpu["place"], gpu["limitMebibytes"], host["place"]) == ("GPU", 40960, "Host")
    assert gpu["mebibytes"] == sum(each["mebibytes"] for each in gpu["lines"])


def test_a_job_whose_result_is_remembered_goes(served: Stage) -> None:
    assert inspections(served) == []
    configs = served.cluster.of_kind("ConfigMap")
    assert not [each for each in configs if each["metadata"]["labels"].get("tailhold.dev/part") == "inspection"]


def test_what_does_not_fit_is_refused_and_what_serves_is_untouched(served: Stage) -> None:
    """A crash loop, a drained pod or a lost GPU: none of them, and the old manifest is back at once."""
    before, serving = served.deployments(), served.served()
    served.put(spec(**card(), **TOO_LONG))
    served.run(seconds=120)
    assert served.condition("Accepted") == ("False", "DoesNotFit")
    assert "`engine.maxModelTokens` is 16,384: the model was made for 8,192" in served.described("Accepted")["message"]
    assert served.condition("RolledOut") == ("False", "DoesNotFit")
    assert served.condition("Available")[0] == "True"
    assert served.described("Stalled")["reason"] == "DoesNotFit"
    assert (served.deployments(), served.served()) == (before, serving)
    assert inspections(served) == [], "the files are known: nothing is looked at again"
    served.put(spec(**card()))
    served.step()
    assert served.condition("Ready") == ("True", "Reconciled")


def test_a_card_that_is_too_small_is_refused_before_anything_is_drained(served: Stage) -> None:
    served.put(spec(**card(16384), rollout={"strategy": "DrainFirst"}))
    served.run(seconds=120)
    assert served.condition("Accepted") == ("False", "DoesNotFit")
    assert "`placement.gpu` has" in served.described("Accepted")["message"]
    assert list(served.deployments().values()) == [2]


def test_missing_files_are_found_by_themselves_once_they_are_there(served: Stage) -> None:
    missing = Fate(exit_code=2, ending={"reason": "ModelNotFound", "message": "/models/new is not a folder"})
    served.controllers.fate = lambda owner: missing if label_of(owner, names.LABEL_INSPECTION) else Fate()
    elsewhere = {"generator": {"model": {"pvc": {"claimName": "models", "path": "new"}}}}
    served.put(spec(**card(), **elsewhere))
    served.run(seconds=60)
    assert served.condition("Accepted") == ("False", "ModelNotFound")
    assert "/models/new is not a folder" in served.described("Stalled")["message"]
    assert (served.condition("Available")[0], len(served.deployments())) == ("True", 1)
    served.controllers.fate = lambda owner: Fate()
    served.run(seconds=30)
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")


def test_a_hub_that_does_not_answer_is_waited_for() -> None:
    stage = stage_with()
    away = Fate(exit_code=1, ending={"reason": "ModelNotFound", "message": "cannot be read from the hub"})
    stage.controllers.fate = lambda owner: away if label_of(owner, names.LABEL_INSPECTION) else Fate()
    stage.put(spec(**card()))
    stage.run(seconds=60)
    assert stage.condition("Accepted") == ("False", "ModelNotFound")
    assert not stage.described("Stalled")
    assert stage.described("Reconciling")


def test_a_result_that_was_lost_is_looked_for_again(served: Stage) -> None:
    served.controllers.inspects = False
    served.put(spec(**card(), server={"image": "registry.example/other:2"}))
    served.run(seconds=20)
    (job,) = (each for each in served.cluster.of_kind("Job") if label_of(each, names.LABEL_INSPECTION))
    job["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    first = job["metadata"]["uid"]
    served.run(seconds=20)
    (again,) = (each for each in served.cluster.of_kind("Job") if label_of(each, names.LABEL_INSPECTION))
    assert again["metadata"]["uid"] != first
    served.controllers.inspects = True
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")


def test_what_has_served_is_not_judged_again_by_a_release_that_counts_otherwise(served: Stage) -> None:
    """An upgrade of the operator alone starts and stops nothing."""
    for config in served.cluster.of_kind("ConfigMap"):
        if config["metadata"]["name"].endswith("-history"):
            config["data"]["history.json"] = config["data"]["history.json"].replace(
                '"parameters":8030', '"parameters":9990'
            )
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")
    assert (len(served.deployments()), inspections(served)) == (1, [])


def test_a_pipeline_that_served_before_there_were_inspections_is_left_alone(served: Stage) -> None:
    for config in served.cluster.of_kind("ConfigMap"):
        if config["metadata"]["name"].endswith("-history"):
            kept = json.loads(config["data"]["history.json"])
            config["data"]["history.json"] = json.dumps(kept | {"inspections": []})
    before = served.children()
    served.run(seconds=60)
    assert served.condition("Ready") == ("True", "Reconciled")
    assert served.children().keys() == before.keys()
    served.put(spec(**card(), engine={"blockSizeTokens": 64}))
    served.settle()
    assert served.condition("Ready") == ("True", "Reconciled")
    assert "weights" in served.described("Accepted")["message"], "the next pods are looked at"


def test_an_index_that_outgrows_the_memory_is_not_given_to_the_pods(served: Stage) -> None:
    snapshot = served.status()["stable"]["snapshot"]
    served.controllers.result = {"snapshot": "6" * 64, "documents": 3, "failedDocuments": 0, "chunks": 50_000_000}
    served.put(spec(**card(), corpus={"sources": [{"name": "all", "pvc": {"claimName": "everything"}}]}))
    served.run(seconds=60)
    assert served.condition("Accepted") == ("False", "DoesNotFit")
    assert "index, twice" in served.described("Accepted")["message"]
    assert served.status()["stable"]["snapshot"] == snapshot
    assert served.pods.pushed == []
