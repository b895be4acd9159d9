"""The CRD says what the models say, all of it, and fits."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from openapi_schema_validator import OAS30Validator
from pydantic import BaseModel, ValidationError
from releases import defaulted
from spec_examples import MINIMAL, at, merged

from tailhold_api.codec import digest, dump, load, load_lenient
from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.crd import custom_resource_definition, structural
from tailhold_api.fields import FieldClass, field_class
from tailhold_api.generate import ROOT, files, member_docs
from tailhold_api.parts import build_part, changes, content_part, pod_part
from tailhold_api.ragpipeline import RagPipeline
from tailhold_api.spec import Spec


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}[]")


SCHEMA = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_every_field_is_described() -> None:
    bare = [
        path
        for path, node in walk(SCHEMA)
        if path not in ("", ".metadata") and path[-2:] != "[]" and not node.get("description")
    ]
    assert bare == []


def test_every_leaf_of_the_spec_has_a_class() -> None:
    assert [path for path, kind in classes(Spec) if kind is None] == []


def classes(model: type[BaseModel], path: str = "", outer: FieldClass | None = None) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = outer or field_class(model, name)
        inner = [part for part in _parts(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        for child in inner:
            yield from classes(child, f"{path}.{name}", kind)
        if not inner:
            yield f"{path}.{name}", kind


def _parts(annotation: Any) -> list[Any]:
    args = getattr(annotation, "__args__", ())
    return [annotation, *(part for arg in args for part in _parts(arg))]


def test_numbers_and_strings_and_lists_are_bounded() -> None:
    spec = SCHEMA["properties"]["spec"]
    loose = [
        path
        for path, node in walk(spec)
        if (node.get("type") in ("integer", "number") and ("minimum" not in node or "maximum" not in node))
        or (node.get("type") == "array" and "maxItems" not in node)
        or (
            node.get("type") == "string"
            and not {"maxLength", "enum", "pattern"} & set(node)
            and not path.endswith("[]")
        )
    ]
    assert loose == []


def test_the_crd_is_under_200_kib() -> None:  # C112
    assert len(json.dumps(custom_resource_definition())) < 200 * 1024


@pytest.mark.parametrize("path", sorted(files()))
def test_generated_files_are_current(path: str) -> None:
    assert (ROOT / path).read_text() == files()[path], "run scripts/generate"


@pytest.mark.parametrize("kind", [ConditionType, Reason])
def test_every_condition_and_reason_is_explained(kind: type[ConditionType] | type[Reason]) -> None:
    assert set(member_docs(kind)) == {member.value for member in kind}


def test_defaults_of_the_crd_are_the_models_defaults() -> None:
    """What the API server stores for the smallest spec is what the models read from it."""
    stored = defaulted(SCHEMA["properties"]["spec"], MINIMAL)
    assert load_lenient(Spec, stored) == load_lenient(Spec, MINIMAL)
    assert dump(load_lenient(Spec, stored)) == dump(load_lenient(Spec, MINIMAL))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"replica": 3}, "replica", id="C01-misspelt"),
        pytest.param({"placement": {"gpu": {"count": "1"}}}, "count", id="C07-number-as-string"),
        pytest.param({"replicas": True}, "replicas", id="C07-boolean-as-number"),
        pytest.param({"engine": {"maxModelTokens": 0}}, "maxModelTokens", id="C07-zero"),
        pytest.param({"retrieval": {"topK": 3000}}, "topK", id="C05-top-k"),
        pytest.param({"index": {"kind": "Flatt"}}, "kind", id="unknown-enum"),
        pytest.param({"corpus": {"sources": []}}, "sources", id="empty-list"),
    ],
)
def test_a_bad_spec_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load(Spec, json.dumps(merged(MINIMAL, change)))
    assert field in str(caught.value.errors()[0]["loc"])


VALIDATOR = OAS30Validator(structural(Spec))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5000), st.floats(-3, 3), st.sampled_from(["1", "Auto", "", "x"])
)
LEAVES = [
    path.strip(".").split(".")
    for path, node in walk(structural(Spec))
    if "properties" not in node and "[]" not in path and path
]


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LEAVES), SCALARS), max_size=3))
def test_models_and_api_server_agree(edits: list[tuple[list[str], Any]]) -> None:
    """Strict JSON parsing accepts exactly what the CRD's schema accepts, nulls aside, which the server prunes."""
    raw = MINIMAL
    for path, value in edits:
        raw = merged(raw, at(tuple(path), value)) if value is not None else raw
    try:
        load_lenient(Spec, raw)
        accepted = True
    except ValidationError:
        accepted = False
    assert VALIDATOR.is_valid(raw) == accepted, raw


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(LEAVES), SCALARS), max_size=3))
def test_canonical_text_comes_back_equal(edits: list[tuple[list[str], Any]]) -> None:
    raw = MINIMAL
    for path, value in edits:
        raw = merged(raw, at(tuple(path), value)) if value is not None else raw
    try:
        spec = load_lenient(Spec, raw)
    except ValidationError:
        return
    assert load(Spec, dump(spec)) == spec
    assert digest(load(Spec, dump(spec))) == digest(spec)


@pytest.mark.parametrize(
    ("change", "path", "kind"),
    [
        pytest.param({"prompt": {"system": "Be brief."}}, "prompt.system", FieldClass.LIVE, id="prompt"),
        pytest.param({"prompt": {"temperature": 0.5}}, "prompt.temperature", FieldClass.LIVE, id="temperature"),
        pytest.param({"retrieval": {"topK": 3}}, "retrieval.topK", FieldClass.LIVE, id="top-k"),
        pytest.param(
            {"engine": {"blockSizeTokens": 64}}, "engine.blockSizeTokens", FieldClass.RESTART, id="block-size"
        ),
        pytest.param({"replicas": 2}, "replicas", FieldClass.POLICY, id="replicas"),
        pytest.param(
            {"corpus": {"chunking": {"maxTokens": 100}}},
            "corpus.chunking.maxTokens",
            FieldClass.RELOAD,
            id="chunk",
        ),
        pytest.param({"paused": True}, "paused", FieldClass.POLICY, id="paused"),
        pytest.param({"index": {"keepSnapshots": 5}}, "index.keepSnapshots", FieldClass.POLICY, id="keep"),
        pytest.param(
            {"index": {"buildMemoryMebibytes": 8192}}, "index.buildMemoryMebibytes", FieldClass.POLICY, id="memory"
        ),
        pytest.param({"index": {"buildMillicores": 2000}}, "index.buildMillicores", FieldClass.POLICY, id="cores"),
    ],
)
def test_a_change_names_its_field_and_class(change: dict[str, Any], path: str, kind: FieldClass) -> None:
    old, new = load_lenient(Spec, MINIMAL), load_lenient(Spec, merged(MINIMAL, change))
    assert [(c.path, c.field_class) for c in changes(old, new)] == [(path, kind)]


def test_what_a_job_is_given_changes_neither_snapshot_nor_pods() -> None:
    given_ = {"keepSnapshots": 5, "buildMemoryMebibytes": 8192, "buildMillicores": 2000}
    old, new = load_lenient(Spec, MINIMAL), load_lenient(Spec, merged(MINIMAL, {"index": given_}))
    assert old != new
    assert build_part(old) == build_part(new)
    assert pod_part("docs", old) == pod_part("docs", new)
    assert content_part(old, "a" * 64) == content_part(new, "a" * 64)


def test_a_temperature_is_pushed_and_its_default_changes_no_digest() -> None:
    old, named, new = (
        load_lenient(Spec, merged(MINIMAL, {"prompt": change}))
        for change in ({}, {"temperature": 0}, {"temperature": 1})
    )
    assert pod_part("docs", old) == pod_part("docs", new)
    assert digest(content_part(old, "a" * 64)) == digest(content_part(named, "a" * 64))
    assert digest(content_part(old, "a" * 64)) != digest(content_part(new, "a" * 64))


def test_nothing_changed_is_no_change() -> None:
    assert changes(load_lenient(Spec, MINIMAL), load_lenient(Spec, MINIMAL)) == ()


def test_examples_parse() -> None:
    for file in sorted((ROOT / "examples").glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if isinstance(document, dict) and document.get("kind") == "RagPipeline":
                load(Spec, json.dumps(document["spec"]))


def test_the_resource_is_spec_and_status() -> None:
    assert set(RagPipeline.model_fields) == {"spec", "status"}
