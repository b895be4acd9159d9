"""An index that was built elsewhere: no Job, and another digest reaches the pods that run."""

from typing import Any

from worlds import Stage, spec

from tailhold_api import names
from tailhold_api.codec import load_lenient
from tailhold_api.forecast import forecast
from tailhold_api.spec import Spec

A, B = "a" * 64, "b" * 64


def given(digest: str, **changes: Any) -> dict[str, Any]:
    body = spec(index={"snapshot": {"source": {"objectStore": {"url": "s3://indexes/h"}}, "digest": digest}}, **changes)
    del body["corpus"]
    return body


def test_no_index_is_built_for_it() -> None:
    stage = Stage()
    stage.put(given(A))
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")
    assert stage.condition("IndexLoaded") == ("True", "Reconciled")
    assert not [each for each in stage.cluster.of_kind("Job") if names.LABEL_BUILD in each["metadata"]["labels"]]
    assert stage.status()["snapshot"]["digest"] == A


def test_another_digest_is_pushed_and_restarts_nothing() -> None:
    stage = Stage()
    stage.put(given(A))
    stage.settle()
    before = stage.deployments()
    stage.put(given(B))
    stage.settle()
    assert stage.deployments() == before
    assert stage.status()["stable"]["snapshot"] == B


def test_one_that_a_pod_refuses_leaves_what_serves() -> None:
    stage = Stage()
    stage.put(given(A))
    stage.settle()
    stage.pods.refuses = lambda pod, content: "snapshot is not there"
    stage.put(given(B))
    stage.run(seconds=20)
    assert stage.condition("Available")[0] == "True"
    assert stage.condition("RolledOut") == ("False", "ContentRefused")
    assert stage.status()["stable"]["snapshot"] == A


def test_from_a_corpus_to_a_given_one_and_back() -> None:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    stage.put(given(A))
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")
    stage.put(spec())
    stage.settle()
    assert stage.condition("Ready") == ("True", "Reconciled")
    assert stage.status()["snapshot"]["digest"] == "5" * 64


def test_a_plan_says_that_nothing_is_built() -> None:
    old, new = (load_lenient(Spec, given(each)) for each in (A, B))
    said = forecast("h", old, new, None)
    assert (said.new_index, said.new_pods, said.new_content) == (False, False, True)
