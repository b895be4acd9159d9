"""Running pods are told what to count, and nothing restarts for it."""

import pytest
from worlds import Stage, spec

from tailhold_api.slo import Objective, ObjectiveMetric, Objectives
from tailhold_operator.pods import _report

PROMISED = {"slo": {"objectives": [{"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 95}]}}
TOLD = Objectives(objectives=(Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=900, percent=95),))


def counted(stage: Stage) -> list[Objectives | None]:
    pods = (each["metadata"]["uid"] for each in stage.cluster.of_kind("Pod") if "pod-part" in str(each["metadata"]))
    return [stage.pods.objectives.get(uid) for uid in pods]


def deployments(stage: Stage) -> set[str]:
    return {each["metadata"]["name"] for each in stage.cluster.of_kind("Deployment")}


def test_each_pod_that_serves_counts_what_is_promised() -> None:
    stage = Stage()
    stage.put(spec(**PROMISED))
    stage.settle()
    assert counted(stage) == [TOLD, TOLD]


def test_another_promise_restarts_nothing_and_one_that_is_taken_back_is_counted_no_more() -> None:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    before = deployments(stage)
    assert counted(stage) == [None, None]
    stage.put(spec(**PROMISED))
    stage.settle()
    assert counted(stage) == [TOLD, TOLD]
    stage.put(spec())
    stage.settle()
    assert counted(stage) == [Objectives(objectives=())] * 2
    assert deployments(stage) == before


def test_a_pod_that_did_not_hear_is_told_again() -> None:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    deaf = next(each["metadata"]["name"] for each in stage.cluster.of_kind("Pod"))
    stage.pods.deaf.add(deaf)
    stage.put(spec(**PROMISED))
    for _ in range(5):
        stage.step()
    stage.pods.deaf.clear()
    stage.settle()
    assert counted(stage) == [TOLD, TOLD]


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ({}, None),
        ({"objectives": []}, Objectives(objectives=())),
        ({"objectives": "none"}, Objectives(objectives=())),
        ({"objectives": [{"metric": "Newer", "thresholdMilliseconds": 1}]}, Objectives(objectives=())),
        (
            {"objectives": [{"metric": "EndToEnd", "thresholdMilliseconds": 900, "percent": 95.0, "newer": 1}]},
            TOLD,
        ),
    ],
)
def test_what_a_pod_says_that_it_counts(told: dict[str, object], read: Objectives | None) -> None:
    assert _report(told).objectives == read
