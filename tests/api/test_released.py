"""What was released goes on working: fields, values, defaults and digests of every version that ever was."""

import copy
from typing import Any

import pytest
from crd_widening import narrowings
from releases import digests_of, released_crd, released_digests, schema_of, stored, versions

from tailhold.rules import broken
from tailhold_api import codec
from tailhold_api.crd import custom_resource_definition
from tailhold_api.spec import Spec
from tailhold_api.status import Status

EXCEPTIONS: dict[str, str] = {}
"""A narrowing that is meant, as the test prints it, and the reason why no stored object can suffer from it."""

OBJECTS = [pytest.param(version, name, id=f"{version}/{name}") for version in versions() for name in stored(version)]
NOW = custom_resource_definition()


def test_some_release_is_kept() -> None:
    assert versions(), "run scripts/keep-release"


@pytest.mark.parametrize("version", versions())
def test_no_field_is_narrower_than_it_was(version: str) -> None:
    """Bounds, values, patterns, types, what is required, defaults, rules."""
    found = narrowings(schema_of(released_crd(version)), schema_of(NOW))
    assert [each for each in found if each not in EXCEPTIONS] == []


@pytest.mark.parametrize("version", versions())
def test_names_versions_and_the_scale_subresource_stay(version: str) -> None:
    old, new = released_crd(version)["spec"], NOW["spec"]
    assert (old["group"], old["scope"], old["names"]) == (new["group"], new["scope"], new["names"])
    served = {each["name"]: each for each in new["versions"] if each["served"]}
    for each in old["versions"]:
        assert served[each["name"]]["subresources"] == each["subresources"]
        columns = {column["name"] for column in served[each["name"]]["additionalPrinterColumns"]}
        assert {column["name"] for column in each["additionalPrinterColumns"]} <= columns


@pytest.mark.parametrize(("version", "name"), OBJECTS)
def test_what_is_stored_is_read_and_keeps_all_rules(version: str, name: str) -> None:
    pipeline = stored(version)[name]
    spec = codec.load_lenient(Spec, pipeline["spec"])
    assert list(broken(spec)) == []
    assert _within(pipeline["spec"], spec.model_dump(mode="json", by_alias=True))
    status = pipeline.get("status", {})
    assert _within(status, codec.load_lenient(Status, status).model_dump(mode="json", by_alias=True))


def _within(old: Any, new: Any) -> bool:
    """Whether nothing that was said is lost or changed."""
    if isinstance(old, dict):
        return all(key in new and _within(each, new[key]) for key, each in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_within, old, new))
    return bool(old == new)


@pytest.mark.parametrize(("version", "name"), OBJECTS)
def test_an_upgrade_of_the_operator_makes_no_new_pods_index_or_content(version: str, name: str) -> None:
    """Its digests are those of the release."""
    assert digests_of(stored(version)[name]) == released_digests(version)[name]


def changed(path: str, **change: Any) -> dict[str, Any]:
    """The schema at hand with one field otherwise; None takes a key away."""
    schema = copy.deepcopy(schema_of(NOW))
    node = schema
    for step in path.split("."):
        node = node["properties"][step]
    for key, value in change.items():
        node.pop(key, None)
        node |= {} if value is None else {key: value}
    return schema


TOP_K, KIND, NAME = "spec.retrieval.topK", "spec.admission.policy", "spec.generator.servedName"
RULE = {"rule": "self.topK < 50", "message": "m"}


@pytest.mark.parametrize(
    ("path", "change", "words"),
    [
        pytest.param(TOP_K, {"maximum": 50}, "maximum was 100 and is 50", id="maximum"),
        pytest.param(TOP_K, {"minimum": 2}, "minimum was 1 and is 2", id="minimum"),
        pytest.param(TOP_K, {"multipleOf": 5}, "multipleOf was None and is 5", id="multiple"),
        pytest.param(TOP_K, {"default": 6}, "the default was 5 and is 6", id="default"),
        pytest.param(TOP_K, {"default": None}, "the default was 5 and is None", id="no default"),
        pytest.param(TOP_K, {"type": "string"}, "the type was integer and is string", id="type"),
        pytest.param(KIND, {"enum": ["Bounded"]}, "the values were", id="value gone"),
        pytest.param(NAME, {"pattern": "^a$"}, "the pattern was", id="pattern"),
        pytest.param(NAME, {"maxLength": 10}, "maxLength was 200 and is 10", id="length"),
        pytest.param("spec", {"required": ["server"]}, "now required: server", id="required"),
        pytest.param("spec.retrieval", {"properties": {}}, "spec.retrieval.topK: the field is gone", id="gone"),
        pytest.param("spec.retrieval", {"x-kubernetes-validations": [RULE]}, "a new rule", id="rule"),
        pytest.param("spec.retrieval", {"default": {"topK": 6}}, "the default was", id="default of a block"),
    ],
)
def test_a_narrowing_is_seen(path: str, change: dict[str, Any], words: str) -> None:
    found = narrowings(schema_of(NOW), changed(path, **change))
    assert any(words in each for each in found), found
    assert all(each.startswith(f".{path}") for each in found)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        pytest.param(TOP_K, {"maximum": 500}, id="maximum"),
        pytest.param(TOP_K, {"minimum": None}, id="no minimum"),
        pytest.param(KIND, {"enum": ["Bounded", "Off", "New"]}, id="value"),
        pytest.param(NAME, {"pattern": None}, id="no pattern"),
        pytest.param("spec.retrieval.minScore", {"type": "number"}, id="the same type"),
    ],
)
def test_a_widening_is_none_of_it(path: str, change: dict[str, Any]) -> None:
    assert narrowings(schema_of(NOW), changed(path, **change)) == []


def test_a_new_field_with_a_rule_and_a_default_of_its_own_is_none_of_it() -> None:
    schema = changed("spec.retrieval", **{"x-kubernetes-validations": [{"rule": "!has(self.rerank)", "message": "m"}]})
    block = schema["properties"]["spec"]["properties"]["retrieval"]
    block["properties"]["rerank"] = {"type": "integer", "default": 0}
    block["default"]["rerank"] = 0
    assert narrowings(schema_of(NOW), schema) == []


def test_every_exception_is_still_one() -> None:
    found = {each for version in versions() for each in narrowings(schema_of(released_crd(version)), schema_of(NOW))}
    assert set(EXCEPTIONS) <= found
