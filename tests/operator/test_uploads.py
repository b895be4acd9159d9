"""Uploads become an index beside the one that serves."""

from datetime import timedelta
from typing import Any

import pytest
from worlds import Stage, spec

from tailhold_operator.history import History
from tailhold_operator.observe import Report
from tailhold_operator.staging import noticed

LEAST = timedelta(seconds=300)
A, B = "a" * 64, "b" * 64


def with_uploads(**corpus: Any) -> dict[str, Any]:
    body = spec()
    return body | {"corpus": body["corpus"] | {"uploads": {"pvc": {"claimName": "uploads"}}, **corpus}}


@pytest.fixture
def taking() -> Stage:
    """A pipeline that serves and takes uploads."""
    stage = Stage()
    stage.pods.uploads[""] = ""
    stage.put(with_uploads())
    stage.run(seconds=120)
    assert stage.condition("Ready")[0] == "True"
    return stage


def jobs(stage: Stage) -> set[str]:
    return {name for each in stage.cluster.of_kind("Job") if "index" in (name := each["metadata"]["name"])}


def test_pods_write_the_claim_and_the_job_reads_it(taking: Stage) -> None:
    (deployment,) = taking.cluster.of_kind("Deployment")
    job = next(each for each in taking.cluster.of_kind("Job") if "index" in each["metadata"]["name"])
    for owner, read_only in ((deployment, None), (job, True)):
        pod = owner["spec"]["template"]["spec"]
        mounts = {each["mountPath"].rpartition("/")[2]: each for each in pod["containers"][0]["volumeMounts"]}
        assert mounts["uploads"].get("readOnly") is read_only
    snapshots = deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert next(each for each in snapshots if each["mountPath"].endswith("/snapshots"))["readOnly"]


def test_an_upload_is_indexed_while_the_pipeline_stays_ready(taking: Stage) -> None:
    taking.controllers.builds = False
    taking.controllers.result = {**taking.controllers.result, "snapshot": "6" * 64}
    before = jobs(taking)
    taking.pods.uploads[""] = A
    for _ in range(10):
        taking.run(seconds=5)
        assert taking.condition("Ready")[0] == "True"
    assert len(jobs(taking) - before) == 1
    assert {content.snapshot for content in taking.pods.content.values()} == {"5" * 64}
    taking.controllers.builds = True
    taking.run(seconds=60)
    assert {content.snapshot for content in taking.pods.content.values()} == {"6" * 64}
    assert taking.status()["stable"]["snapshot"] == "6" * 64
    assert taking.condition("Ready")[0] == "True"
    after = jobs(taking)
    taking.run(seconds=400)
    assert jobs(taking) == after


def test_what_comes_meanwhile_waits_for_its_time_and_no_job_is_cut_short(taking: Stage) -> None:
    taking.pods.uploads[""] = A
    taking.run(seconds=20)
    first = jobs(taking)
    taking.pods.uploads[""] = B
    taking.run(seconds=240)
    assert jobs(taking) == first
    taking.run(seconds=120)
    assert len(jobs(taking) - first) == 1


def test_a_corpus_that_is_as_it_was_before_is_built_again(taking: Stage) -> None:
    """Its snapshot may be gone."""
    for digest in (A, "", A):
        taking.pods.uploads[""] = digest
        taking.run(seconds=400)
    before = jobs(taking)
    taking.pods.uploads[""] = ""
    taking.run(seconds=400)
    assert jobs(taking) - before


def test_another_corpus_and_an_upload_are_one_build(taking: Stage) -> None:
    taking.controllers.builds = False
    taking.pods.uploads[""] = A
    taking.run(seconds=20)
    taking.put(with_uploads(chunking={"maxTokens": 100}))
    taking.run(seconds=20)
    running = [each for each in taking.cluster.of_kind("Job") if not (each.get("status") or {}).get("conditions")]
    assert len(running) == 1
    taking.controllers.builds = True
    taking.run(seconds=120)
    assert taking.condition("Ready")[0] == "True"


def test_least_time_between_builds_builds_nothing(taking: Stage) -> None:
    before = jobs(taking)
    taking.put(with_uploads(minRebuildSeconds=10))
    taking.run(seconds=60)
    assert jobs(taking) == before


def test_an_upload_that_nothing_changed_writes_nothing(taking: Stage) -> None:
    taking.pods.uploads[""] = A
    taking.run(seconds=400)
    writes = len(taking.cluster.writes)
    taking.run(seconds=400)
    assert len(taking.cluster.writes) == writes


def test_pods_that_do_not_agree_are_waited_for() -> None:
    clock = Stage().clock
    both = {"one": Report("", "", "", uploads=A), "two": Report("", "", "", uploads=B)}
    assert noticed(History(), both, LEAST, clock.now) == History()
    silent = {"one": Report("", "", "", uploads=None)}
    assert noticed(History(), silent, LEAST, clock.now) == History()
    agreed = noticed(History(), {"one": both["one"], "three": both["one"]}, LEAST, clock.now)
    assert agreed.uploads_digest == A
