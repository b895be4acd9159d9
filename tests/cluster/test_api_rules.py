"""What the API server refuses, and how it says so: every rule with its accepted and its refused example."""

import json
from typing import Any

import pytest
from rule_examples import RULES, placed
from spec_examples import MINIMAL, merged

from tailhold.target import CommandError, Target
from tailhold_api import names
from tailhold_api.fields import Rule

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def api(equipped: Target) -> Target:
    """The API server with the CRD as helm installed it."""
    return equipped


def pipeline(spec: dict[str, Any], name: str = "rules") -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": name}, "spec": spec}


def dry_run(api: Target, spec: dict[str, Any]) -> str:
    words = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    return api.kubectl(*words, stdin=json.dumps(pipeline(spec)))


@pytest.mark.parametrize(("path", "rule"), RULES)
def test_a_rule_takes_its_accepted_example(api: Target, path: tuple[str, ...], rule: Rule) -> None:
    assert "created" in dry_run(api, placed(path, rule.accepted))


@pytest.mark.parametrize(("path", "rule"), RULES)
def test_a_rule_refuses_its_refused_example(api: Target, path: tuple[str, ...], rule: Rule) -> None:
    with pytest.raises(CommandError) as refusal:
        dry_run(api, placed(path, rule.refused))
    assert rule.message in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"replica": 3}, 'unknown field "spec.replica"', id="C01-misspelt"),
        pytest.param({"retrieval": {"topk": 3}}, 'unknown field "spec.retrieval.topk"', id="C01-case"),
        pytest.param({"placement": {"gpu": {"count": "1"}}}, "spec.placement.gpu.count", id="C07-string"),
        pytest.param({"replicas": True}, "spec.replicas", id="C07-boolean"),
        pytest.param({"engine": {"blockSizeTokens": 12}}, "spec.engine.blockSizeTokens", id="not-a-multiple"),
        pytest.param({"retrieval": {"topK": 3000}}, "spec.retrieval.topK", id="C05-over-the-cap"),
        pytest.param({"index": {"kind": "Flatt"}}, 'supported values: "Flat"', id="unknown-enum"),
        pytest.param({"corpus": {"sources": []}}, "spec.corpus.sources", id="empty-list"),
    ],
)
def test_a_mistake_is_refused_by_field(api: Target, change: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError) as refusal:
        dry_run(api, merged(MINIMAL, change))
    assert words in str(refusal.value)


def test_every_field_is_explained(api: Target) -> None:
    """`kubectl explain` prints <no description> for a field that has none."""
    for path in ("spec", "status"):
        assert "<no description>" not in api.kubectl("explain", f"ragpipeline.{path}")
    listed = api.kubectl("explain", "ragpipeline.spec", "--recursive")
    assert all(field in listed for field in ("blockSizeTokens", "topK", "sharedMemoryMebibytes"))
    for field in (
        "engine.blockSizeTokens",
        "retrieval.topK",
        "corpus.sources.pvc.claimName",
        "placement.gpu.count",
    ):
        assert "<no description>" not in api.kubectl("explain", f"ragpipeline.spec.{field}")


def test_the_short_name_and_the_category_list_pipelines(api: Target) -> None:
    assert api.kubectl("get", "ragp", "-n", "kube-public") == api.kubectl("get", "tailhold", "-n", "kube-public") == ""
