"""Manifests that `tailhold serve` is given."""

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from rule_examples import RULES, placed
from spec_examples import MINIMAL, merged

from tailhold.given import GivenError
from tailhold.manifest import ManifestError, read_manifest
from tailhold.places import ServeFailedError
from tailhold.rules import broken
from tailhold.serve import serve
from tailhold_api.codec import load
from tailhold_api.fields import Rule
from tailhold_api.spec import Spec


def pipeline(name: str = "docs", **change: Any) -> dict[str, Any]:
    """A RagPipeline."""
    return {
        "apiVersion": "tailhold.dev/v1alpha1",
        "kind": "RagPipeline",
        "metadata": {"name": name, "annotations": {"tailhold.dev/rebuild": "2"}},
        "spec": merged(copy.deepcopy(MINIMAL), change),
    }


def written(folder: Path, *documents: Any) -> Path:
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_the_pipeline_is_picked_from_among_other_objects(tmp_path: Path) -> None:
    path = written(tmp_path, {"kind": "ConfigMap"}, None, pipeline("handbook"))
    found = read_manifest(path)
    assert (found.name, found.rebuild, found.namespace) == ("handbook", "2", "")
    assert found.spec == load(Spec, json.dumps(MINIMAL))


def test_a_collector_that_is_no_url_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ServeFailedError, match="--otlp collector:4317: give the URL of a collector, as http://"):
        serve(written(tmp_path, pipeline()), otlp="collector:4317")


def test_several_pipelines_or_none_are_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="2: one, two"):
        read_manifest(written(tmp_path, pipeline("one"), pipeline("two")))
    with pytest.raises(ManifestError, match="0: none"):
        read_manifest(written(tmp_path, {"kind": "ConfigMap"}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"retrieval": {"topK": 0}}, ("retrieval.topK", "greater than or equal to 1", "got 0")),
        ({"retrieval": {"topK": "5"}}, ("retrieval.topK", "valid integer", "got '5'")),
        ({"retrieval": {"contextOrder": "Random"}}, ("retrieval.contextOrder", "'Relevance' or 'Stable'")),
        ({"retrival": {}}, ("retrival", "did you mean `retrieval`?")),
        (
            {"retrieval": {"contextTokens": 4096}},
            ("retrieval.contextTokens", "must be less than `engine.maxModelTokens`"),
        ),
        (
            {"prompt": {"maxAnswerTokens": 2048}},
            ("prompt.maxAnswerTokens", "must be less than `engine.maxModelTokens`"),
        ),
        (
            {"generator": {"model": {"path": "/models/x"}}},
            ("generator.model", "exactly one of `huggingFace`, `pvc`, `image`, `objectStore` and `path`"),
        ),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(
    tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(ManifestError) as caught:
        read_manifest(written(tmp_path, pipeline(**change)))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("path", "rule"), RULES)
def test_a_rule_between_fields_is_kept_and_broken_by_its_examples(path: tuple[str, ...], rule: Rule) -> None:
    assert list(broken(load(Spec, json.dumps(placed(path, rule.accepted))))) == []
    with suppress(ValidationError):  # one that the models' own bounds catch
        found = "\n".join(broken(load(Spec, json.dumps(placed(path, rule.refused)))))
        assert rule.message in found


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ServeFailedError, match=r"none\.yaml"):
        serve(tmp_path / "none.yaml")
    with pytest.raises(GivenError, match=r"pod\.json"):
        serve(None, tmp_path / "pod.json", tmp_path / "content.json")
    with pytest.raises(ManifestError, match="apiVersion"):
        read_manifest(written(tmp_path, pipeline() | {"apiVersion": "v1"}))
