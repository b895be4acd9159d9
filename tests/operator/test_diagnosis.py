"""From what scheduler, kubelet and pods say to one reason."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from tailhold_api.spec import Spec
from tailhold_operator import inspecting
from tailhold_operator.diagnosis import diagnose, lacks_room
from tailhold_operator.findings import advised
from tailhold_operator.indexing import assess, surplus
from tailhold_operator.observe import Deployment, Job, Report, read_deployment, read_pod

GPU = "nvidia.com/gpu"


def pod(status: dict[str, Any], **labels: str) -> Any:
    return read_pod({"metadata": {"name": "a", "labels": labels}, "spec": {"nodeName": "n1"}, "status": status})


def container(
    state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, restarts: int = 0
) -> dict[str, Any]:
    found = {"restartCount": restarts, "state": state or {"running": {}}}
    if last:
        found["lastState"] = {"terminated": last}
    return {"phase": "Running", "containerStatuses": [found]}


def unschedulable(words: str) -> dict[str, Any]:
    reason = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return {"phase": "Pending", "conditions": [reason]}


LOOP = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
PULL = {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}
MISSING = {"exitCode": 2, "message": '{"reason": "ModelNotFound", "message": "/models/x is not there"}'}
KILLED = {"exitCode": 137, "reason": "OOMKilled", "message": ""}
CASES = {
    "nothing is known yet": ({}, "WaitingForPods", ""),
    "the model is not there": (container(LOOP, MISSING), "ModelNotFound", "/models/x is not there"),
    "again and again": (container(LOOP, KILLED, 5), "CrashLoop", "OOMKilled"),
    "once": (container(last=KILLED, restarts=1), "StartFailed", "137"),
    "an unknown reason": (container(LOOP, {"exitCode": 2, "message": "{}"}), "StartFailed", "exit code 2"),
    "garbage in the log": (
        container(LOOP, {"exitCode": 1, "message": "Traceback"}),
        "CrashLoop",
        "Traceback",
    ),
    "no image": (container(PULL), "WaitingForPods", "manifest unknown"),
    "no GPU": (unschedulable("1 Insufficient nvidia.com/gpu."), "InsufficientGPU", "Insufficient"),
    "C125 a taint": (
        unschedulable("1 node(s) had untolerated taint {sku: gpu}."),
        "Unschedulable",
        "{sku: gpu}",
    ),
    "C21 not admitted": (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no device"},
        "PodRefused",
        "UnexpectedAdmissionError: no device",
    ),
    "running": (container(), "LoadingModel", "starting"),
}


@pytest.mark.parametrize(("status", "reason", "words"), CASES.values(), ids=CASES)
def test_one_reason_is_given(status: dict[str, Any], reason: str, words: str) -> None:
    found = diagnose([pod(status)], None, {}, GPU)
    assert found.reason == reason
    assert words in found.message
    assert not found.holds


def test_a_runtime_class_that_is_not_there_is_said_though_no_pod_exists() -> None:
    """C123."""
    words = 'pods "x" is forbidden: RuntimeClass "nvidia" not found'
    failure = {"type": "ReplicaFailure", "status": "True", "message": words}
    deployment: Deployment = read_deployment(
        {
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 1},
            "status": {"conditions": [failure]},
        }
    )
    found = diagnose([], deployment, {}, GPU)
    assert (found.reason, found.message, found.stalled) == ("PodRefused", words, True)


def test_a_pod_tells_its_phase() -> None:
    found = diagnose([pod(container())], None, {"a": Report("", "", "", phase="weights")}, GPU)
    assert "weights" in found.message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("0/1 nodes are available: 1 Insufficient cpu.", True, id="full"),
        pytest.param(
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are"
            " available: 1 No preemption victims found for incoming pod.",
            True,
            id="full of pods that matter as much",
        ),
        pytest.param(
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are"
            " available: 1 Preemption is not helpful for scheduling.",
            False,
            id="too small even when it is empty",
        ),
        pytest.param(
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node"
            " affinity/selector. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod,"
            " 1 Preemption is not helpful for scheduling.",
            True,
            id="one full and one of another kind",
        ),
        pytest.param("0/1 nodes are available: 1 Too many pods.", True, id="too many"),
        pytest.param("1 node(s) didn't match Pod's node affinity/selector.", False, id="no node fits"),
    ],
)
def test_room_is_made_only_where_room_would_help(words: str, expected: bool) -> None:
    assert lacks_room(pod(unschedulable(words))) is expected


def job(build: str, created: str = "1", complete: bool = False, failed: bool = False) -> Job:
    return Job(build, created, complete, failed, "backoff limit")


BUILD = "b" * 64
SHORT = BUILD[:10]


def test_a_failed_build_without_a_pod_still_says_something() -> None:
    found = assess(BUILD, None, [job(SHORT, failed=True)], [], None)
    assert (found.finding.reason, found.finding.message) == ("IndexBuildFailed", "backoff limit")
    assert found.finding.stalled


def test_an_attempt_that_failed_is_named_while_the_next_one_runs() -> None:
    ended = container({"terminated": KILLED}) | {"phase": "Failed"}
    label = {"tailhold.dev/index-build": SHORT}
    pods = [pod(ended, **label), pod(container(), **label)]
    found = assess(BUILD, None, [job(SHORT)], pods, {"step": "embed", "done": 5, "total": 9, "unit": "chunks"})
    assert found.finding.message == "embed: 5 of 9 chunks; attempt 2, the last one ended: OOMKilled"


def test_progress_that_makes_no_sense_is_left_out() -> None:
    assert assess(BUILD, None, [job(SHORT)], [], {"step": 5}).progress is None


def test_the_newest_two_jobs_stay_and_the_one_that_is_asked_for_always() -> None:
    jobs = [job("a", "1", complete=True), job("b", "2", failed=True), job("c", "3", complete=True)]
    assert surplus(jobs, {"c"}) == {"a"}
    assert surplus(jobs, {"a"}) == {"b"}
    assert surplus(jobs, {"x"}) == {"a"}
    assert surplus([], {"x"}) == frozenset()


def test_a_job_that_runs_for_nobody_goes_at_once() -> None:
    jobs = [job("a", "1", complete=True), job("b", "2"), job("c", "3")]
    assert surplus(jobs, {"c"}) == {"b"}
    assert surplus(jobs, {"a"}) == {"b", "c"}


def test_a_job_that_gets_no_pod_says_what_the_cluster_says() -> None:
    refused = replace(job(SHORT), warning='FailedCreate: pods "x" is forbidden: exceeded quota')
    found = assess(BUILD, None, [refused], [], None).finding
    assert (found.reason, found.stalled) == ("PodRefused", False)
    assert "exceeded quota" in found.message


def test_a_pod_that_cannot_mount_says_what_kubelet_says() -> None:
    held = replace(
        pod({"phase": "Pending"}, **{"tailhold.dev/index-build": SHORT}), node="node", warning="FailedMount: x"
    )
    found = assess(BUILD, None, [job(SHORT)], [held], None).finding
    assert (found.reason, found.message) == ("WaitingForPods", "index Job: FailedMount: x")
    assert "FailedMount: x" in diagnose([replace(held, build="")], None, {}, "nvidia.com/gpu").message


def test_pods_that_there_are_not_yet_are_being_created() -> None:
    found = diagnose([], None, {}, GPU)
    assert (found.reason, found.message) == ("WaitingForPods", "the pods are being created")


NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "nope" not found. not found'


def test_a_claim_that_is_not_there_is_said_with_the_fields_that_name_claims() -> None:
    """By all that wait for it: the serving pods, the index Job and the inspection Job."""
    build, look = {"tailhold.dev/index-build": SHORT}, {"tailhold.dev/inspection": SHORT}
    serving = diagnose([pod(unschedulable(NO_CLAIM))], None, {}, GPU)
    indexing = assess(BUILD, None, [job(SHORT)], [pod(unschedulable(NO_CLAIM), **build)], None).finding
    inspected = inspecting.assess(BUILD, None, [job(SHORT)], [pod(unschedulable(NO_CLAIM), **look)]).finding
    for found in (serving, indexing, inspected):
        assert f"{NO_CLAIM}; make the claim in the pipeline's namespace" in found.message
        for path in claim_fields(Spec):
            assert all(f"`{part}`" in found.message for part in _as_said(path)), path


NO_SECRET = 'FailedMount: MountVolume.SetUp failed for volume "secret-0" : secret "clients" not found'


def test_a_secret_that_is_not_there_is_said_by_name_with_what_to_do() -> None:
    mounting = replace(pod({"phase": "Pending"}), node="node", warning=NO_SECRET)
    config_error = replace(
        pod({"phase": "Pending"}), waiting="CreateContainerConfigError", waiting_message='secret "clients" not found'
    )
    for held in (mounting, config_error):
        found = diagnose([held], None, {}, GPU)
        assert (found.reason, found.stalled) == ("WaitingForPods", False), "it goes on by itself once it is made"
        assert 'secret "clients" not found; make the Secret in the pipeline\'s namespace' in found.message
        assert "`server.auth.apiKeys`" in found.message


def _as_said(path: str) -> tuple[str, ...]:
    owner, _, field = path.rpartition(".pvc.")
    return (f"pvc.{field}", owner) if owner else (path,)


def claim_fields(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Paths of all fields that name a claim."""
    for field in model.model_fields.values():
        inner = f"{path}.{field.alias}".removeprefix(".")
        for part in _models(field.annotation):
            yield from claim_fields(part, inner)
        if field.alias == "claimName":
            yield inner


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _models(each)


def test_other_words_of_the_scheduler_stay_as_they_are() -> None:
    assert advised("1 Insufficient cpu.") == "1 Insufficient cpu."
