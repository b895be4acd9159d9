"""The truth table of docs/reference/conditions.md, row by row, and what others make of each row."""

from typing import Any

import pytest
from driven import DRIVEN, OTHER, serving
from kstatus import kstatus, kubectl_waits_for
from worlds import KEY, Stage, spec

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.crd import UNSEEN
from tailhold_api.situations import SITUATIONS, Said, conditions

IN_NO_ROW: dict[Reason, str] = {}
"""Reasons that no situation gives, and why they are there all the same."""


def pipeline(stage: Stage) -> dict[str, Any]:
    return stage.cluster.objects[KEY]


@pytest.fixture(scope="module", params=SITUATIONS)
def row(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, pipeline(DRIVEN[request.param]())


def test_a_row_says_what_the_operator_says(row: tuple[str, dict[str, Any]]) -> None:
    text, found = row
    holds = {"True": True, "False": False, "Unknown": None}
    told = {each["type"]: Said(holds[each["status"]], each["reason"]) for each in found["status"]["conditions"]}
    assert told == {kind.value: said for kind, said in conditions(SITUATIONS[text]).items()}


def test_all_that_wait_agree(row: tuple[str, dict[str, Any]]) -> None:
    """Flux and Helm by kstatus, `kubectl wait` by Ready."""
    text, found = row
    assert kstatus(found) == SITUATIONS[text].kstatus
    assert kubectl_waits_for(found, "Ready") == (kstatus(found) == "Current")


def test_what_is_not_fine_says_why_in_a_sentence(row: tuple[str, dict[str, Any]]) -> None:
    _, found = row
    for each in found["status"]["conditions"]:
        if each["status"] != "True" or each["type"] in (ConditionType.STALLED, ConditionType.RECONCILING):
            assert each.get("message"), each


def test_every_row_can_be_driven_and_no_other() -> None:
    assert set(DRIVEN) == set(SITUATIONS)


def test_every_reason_is_in_a_row() -> None:
    told = {said.reason for row in SITUATIONS.values() for said in conditions(row).values()}
    assert set(Reason) - told == set(IN_NO_ROW)


def test_every_condition_is_in_a_row() -> None:
    assert {kind for row in SITUATIONS.values() for kind in conditions(row)} == set(ConditionType)


def test_what_was_not_looked_at_yet_is_in_progress() -> None:
    """Without the default of `status` a new pipeline would pass for one that is done."""
    stage = Stage()
    stage.put(spec())
    pipeline(stage)["status"] = dict(UNSEEN)
    assert kstatus(pipeline(stage)) == "InProgress"
    stage.step()
    assert pipeline(stage)["status"]["observedGeneration"] == 1


def test_an_edit_that_was_not_looked_at_yet_is_in_progress() -> None:
    stage = serving()
    assert kstatus(pipeline(stage)) == "Current"
    stage.put(spec(**OTHER))
    assert kstatus(pipeline(stage)) == "InProgress"
    assert not kubectl_waits_for(pipeline(stage), "Ready")
