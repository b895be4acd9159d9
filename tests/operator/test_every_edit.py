"""No field has to be kept from changing: each edit is carried out while the old revision serves, and taken back."""

import copy
from typing import Any

import pytest
from spec_edits import one_field_edits
from spec_examples import MINIMAL, merged
from worlds import Stage

from tailhold_operator.kinds import Manifest
from tailhold_operator.staging import LOOK

START = merged(MINIMAL, {"replicas": 2})
HUB = {"huggingFace": {"repo": "other/model", "revision": "a" * 40}}


def replaced(**models: Any) -> dict[str, Any]:
    """Another kind of source: two of a one-of would be refused."""
    body = copy.deepcopy(START)
    for owner, source in models.items():
        body[owner]["model"] = source
    return body


EDITS = one_field_edits(START) | {
    "generator.model.path": replaced(generator={"path": "/models/other"}),
    "generator.model.huggingFace": replaced(generator=HUB),
    "embedder.model.path": replaced(embedder={"path": "/models/other"}),
    "embedder.model.huggingFace": replaced(embedder=HUB),
    "engine.tensorParallel": merged(START, {"engine": {"tensorParallel": 2}, "placement": {"gpu": {"count": 2}}}),
    "placement.cpu.requestMillicores": merged(
        START, {"placement": {"cpu": {"exclusive": False, "requestMillicores": 500}}}
    ),
    "audit.sink": merged(START, {"audit": {"sink": {"pvc": {"claimName": "audit"}}}}),
    "audit.records": merged(START, {"audit": {"sink": {"pvc": {"claimName": "audit"}}, "records": "Texts"}}),
    "placement.gpu.count to none": merged(START, {"placement": {"gpu": {"count": 0}}}),
}


@pytest.fixture(scope="module")
def served() -> Stage:
    stage = Stage()
    stage.put(START)
    stage.settle()
    return stage


def settled(stage: Stage, body: Manifest) -> bool:
    """Whether some pod answered all the time until nothing was left to do."""
    stage.put(body)
    answered = True
    for _ in range(60):
        before = len(stage.cluster.writes)
        wait = stage.step()
        stage.controllers.run()
        stage.clock.pass_by(seconds=wait.total_seconds() if wait else 1)
        answered = answered and stage.condition("Available")[0] == "True"
        if wait in (None, LOOK) and len(stage.cluster.writes) == before:
            return answered
    raise AssertionError("never quiet")


@pytest.mark.parametrize("field", sorted(EDITS))
def test_an_edit_is_carried_out_and_taken_back_and_something_answers_all_the_time(field: str, served: Stage) -> None:
    """An edit that fails here needs a rule with `oldSelf`: see docs/decisions."""
    stage = copy.deepcopy(served)
    before, built = stage.status()["stable"]["name"], stage.status()["snapshot"]
    stage.controllers.result = {"snapshot": "6" * 64, "documents": 4, "failedDocuments": 0, "chunks": 8}
    nothing_asked = EDITS[field].get("replicas") == 0
    assert settled(stage, EDITS[field]) or nothing_asked
    assert stage.condition("Ready")[0] == "True"
    jobs = sum("apply Job" in write for write in stage.cluster.writes)
    assert settled(stage, START) or nothing_asked
    assert stage.condition("Ready")[0] == "True"
    assert (stage.status()["stable"]["name"], stage.status()["snapshot"]) == (before, built)
    assert sum("apply Job" in write for write in stage.cluster.writes) == jobs, "what was built is kept"
