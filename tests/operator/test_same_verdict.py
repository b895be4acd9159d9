"""`tailhold validate` and the API server say the same of every manifest, and refuse hundreds of wrong ones.

Lax by nature, in the API server alone: null in a field that may be left out is dropped, unless the field is required.
"""

import copy
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from api_server import CRD, ApiServer
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_snake
from rule_examples import RULES
from rule_examples import placed as example_at
from worlds import spec

from tailhold.manifest import ManifestError, read_manifests
from tailhold.profiles import PROFILES, render_profile
from tailhold_api import names
from tailhold_api.fields import Rule
from tailhold_operator.kinds import path_of

Wrong = tuple[str, dict[str, Any]]
FIRST = "0"
"""The step from a list to its first entry."""
SCHEMA = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
CORPORATE = yaml.safe_load((Path(__file__).parents[1] / "golden" / "corporate" / "in.yaml").read_text())["spec"]
COMPLETE = spec(
    replicas=1,
    pod=CORPORATE["pod"],
    placement=CORPORATE["placement"],
    corpus={
        "sources": [{"name": "a", "configMap": {"name": "a"}}, {"name": "b", "pvc": {"claimName": "b"}}],
        "chunking": {"maxTokens": 100, "overlapTokens": 10},
    },
)


def leaves(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field below an object, blocks among them, and of lists the first entry where the complete spec has one."""
    for name, child in schema.get("properties", {}).items():
        yield (*path, name), child
        yield from leaves(child, (*path, name))
        if "properties" in child.get("items", {}) and isinstance(
            parent(copy.deepcopy(COMPLETE), (*path, name, FIRST)), list
        ):
            yield from leaves(child["items"], (*path, name, FIRST))


def wrong_values(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that a field of this schema may not have."""
    kind = schema["type"]
    yield from OF_ANOTHER_TYPE[kind].items()
    if "minimum" in schema:
        yield "too small", schema["minimum"] - 1
    if "maximum" in schema:
        yield "too large", schema["maximum"] + 1
    if kind == "number":  # a bound that is no whole number is cut to one where the value is
        yield "the whole number below", math.ceil(schema["minimum"]) - 1
        yield "the whole number above", math.floor(schema["maximum"]) + 1
    if "multipleOf" in schema:
        yield "no multiple", schema["multipleOf"] + 1
    if "enum" in schema:
        yield "no such word", "Ünbekannt"
        yield "lower case", schema["enum"][0].lower()
    if schema.get("minLength"):
        yield "empty", ""
    if "maxLength" in schema:
        yield "too long", "x" * (schema["maxLength"] + 1)
    if schema.get("minItems"):
        yield "no entries", []


OF_ANOTHER_TYPE: dict[str, dict[str, Any]] = {
    "integer": {"text": "1", "half": 1.5, "true": True, "list": [1], "huge": 10**19},
    "number": {"text": "0.5", "object": {}},
    "string": {"number": 5, "object": {}, "true": True},
    "boolean": {"text": "true", "number": 1},
    "array": {"object": {"a": 1}, "text": "a"},
    "object": {"list": [], "text": "a"},
}


def parent(body: dict[str, Any], path: tuple[str, ...]) -> Any:
    """What holds the field at the end of the path; made where it is missing."""
    target: Any = body
    for step in path[:-1]:
        target = target[0] if step == FIRST else target.setdefault(step, {})
    return target


def placed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The complete spec with one field changed."""
    out = copy.deepcopy(COMPLETE)
    parent(out, path)[path[-1]] = value
    return out


def wrong_specs() -> Iterator[Wrong]:
    """One fault each."""
    for path, schema in leaves(SCHEMA):
        where = ".".join(path)
        for name, value in wrong_values(schema):
            yield f"{where} {name}", placed(path, value)
        if "properties" in schema:
            yield f"{where} unknown field", placed((*path, "tpoK"), 1)
        if path[-1] != path[-1].lower():
            yield f"{where} by its Python name", placed((*path[:-1], to_snake(path[-1])), 1)
    for name in SCHEMA["required"]:
        yield f"{name} missing", {key: value for key, value in COMPLETE.items() if key != name}
        yield f"{name} null", COMPLETE | {name: None}


WRONG = list(wrong_specs())


def faults_here(body: Any) -> str:
    """What `tailhold validate` says against it, a line for each fault."""
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "a"}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.yaml"
        path.write_text(yaml.safe_dump(head | {"spec": body}))
        try:
            read_manifests(path)
        except ManifestError as error:
            return str(error)
        return ""


def verdict_here(body: Any) -> bool:
    """Whether `tailhold validate` takes it."""
    return not faults_here(body)


@pytest.fixture(scope="module")
def admin(api: ApiServer) -> Iterator[httpx.Client]:
    with api.client() as client:
        yield client


def verdict_there(admin: httpx.Client, body: Any) -> tuple[bool, str]:
    """Whether the API server takes it as kubectl sends it, and its words."""
    head = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "a", "namespace": "default"}}
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    answer = admin.post(path_of(names.KIND, "default"), json=head | {"spec": body}, params=query)
    return answer.is_success, answer.text


def test_there_are_enough_wrong_ones() -> None:
    assert len(WRONG) >= 200
    print(f"{len(WRONG)} wrong manifests")


def test_what_all_is_changed_from_is_right(admin: httpx.Client) -> None:
    assert verdict_here(COMPLETE)
    assert verdict_there(admin, COMPLETE)[0]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_taken(admin: httpx.Client, profile: str) -> None:
    taken, words = verdict_there(admin, yaml.safe_load(render_profile(profile, "a"))["spec"])
    assert taken, words


def test_every_wrong_manifest_is_refused_by_both(admin: httpx.Client) -> None:
    taken = [name for name, body in WRONG if verdict_here(body)]
    assert taken == []
    taken = [name for name, body in WRONG if verdict_there(admin, body)[0]]
    assert taken == []


@pytest.mark.parametrize("path", [path for path, _ in leaves(SCHEMA)], ids=".".join)
def test_null_in_a_field_is_dropped_or_refused_by_both(admin: httpx.Client, path: tuple[str, ...]) -> None:
    body = placed(path, None)
    there, words = verdict_there(admin, body)
    assert verdict_here(body) == there, words


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values near the border of what a field may have, on both sides of it."""
    wrong = [value for _, value in wrong_values(schema) if value != 10**19]
    right: list[Any] = list(schema.get("enum", ()))
    right += [schema[key] for key in ("default", "minimum", "maximum", "multipleOf") if key in schema]
    return st.sampled_from([*right, *right, *wrong]) if right else st.sampled_from(wrong)


PLAIN = [(path, schema) for path, schema in leaves(SCHEMA) if "properties" not in schema]


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """The complete spec with a few fields changed, so that rules between them are met too."""
    out = copy.deepcopy(COMPLETE)
    for path, schema in draw(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4)):
        value = draw(values(schema))
        with suppress(LookupError, AttributeError, TypeError):  # what holds it was changed before
            parent(out, path)[path[-1]] = value
    return out


@given(body=specs())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_say_the_same(admin: httpx.Client, body: dict[str, Any]) -> None:
    there, words = verdict_there(admin, body)
    event("taken" if there else "refused")
    assert verdict_here(body) == there, words


@pytest.mark.parametrize(("path", "rule"), RULES)
def test_a_rule_is_kept_and_broken_in_both_with_the_same_words(
    admin: httpx.Client, path: tuple[str, ...], rule: Rule
) -> None:
    right, wrong = example_at(path, rule.accepted), example_at(path, rule.refused)
    there, words = verdict_there(admin, right)
    assert (there, faults_here(right)) == (True, ""), words
    there, words = verdict_there(admin, wrong)
    found = faults_here(wrong).splitlines()
    assert found
    assert not there
    for line in (each for each in found if rule.message in each):  # but for one that the models' own bounds catch
        place, _, message = line.partition(": a: ")[2].partition(": ")
        assert f"{place}: Invalid value" in json.loads(words)["message"]
        assert message in json.loads(words)["message"]


def sourced(**source: Any) -> dict[str, Any]:
    """The complete spec with one corpus source."""
    return placed(("corpus", "sources"), [{"name": "a", "pvc": {"claimName": "a"}} | source])


FOLDERS = {
    True: [".", "a", "a/b", "a//b", "a/", "./a", ".a/.b", "..a", "a..", "...", "a/..b/c", "Ordner für a", "資料"],
    False: [
        "",
        "/",
        "/a",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a//..",
        "./..",
        "a\0b",
        "a\nb",
        "\x1b[31m",
        "a\x7f",
        "a\x85",
    ],
}
GLOBS = {
    True: ["*", "**/*.md", "[a", "a]", "[!]", "?", "für *.md", "../*", "g" * 500],
    False: ["", "a\0b", "*\n", "\t*", "*\x9f", "g" * 501],
}


@pytest.mark.parametrize(("right", "path"), [(right, path) for right, paths in FOLDERS.items() for path in paths])
def test_a_folder_of_a_claim_stays_within_it_and_can_be_printed(admin: httpx.Client, right: bool, path: str) -> None:
    body = sourced(pvc={"claimName": "a", "path": path})
    assert (verdict_here(body), verdict_there(admin, body)[0]) == (right, right)


@pytest.mark.parametrize("field", ["include", "exclude"])
@pytest.mark.parametrize(("right", "glob"), [(right, glob) for right, globs in GLOBS.items() for glob in globs])
def test_a_glob_is_some_text_that_can_be_printed(admin: httpx.Client, field: str, right: bool, glob: str) -> None:
    body = sourced(**{field: [glob]})
    assert (verdict_here(body), verdict_there(admin, body)[0]) == (right, right)
