"""The plan from what is wanted and what is there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.kinds import Manifest, Ref, ref_of
from tailhold_operator.plan import Apply, Delete, holds, plan, stamped

UID = "uid-1"


def manifest(kind: str, name: str, spec: dict[str, Any]) -> Manifest:
    owner = {"apiVersion": "v1", "kind": "RagPipeline", "name": "p", "uid": UID, "controller": True}
    metadata = {"name": name, "namespace": "team", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 3), st.sampled_from(["a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)),
    max_leaves=5,
)
SPECS = st.dictionaries(st.sampled_from("pqr"), VALUES, max_size=3)
MANIFESTS = st.builds(manifest, st.sampled_from(["ConfigMap", "Service"]), st.sampled_from("abcd"), SPECS)
WORLDS = st.lists(MANIFESTS, unique_by=ref_of, max_size=6)


def stored(each: Manifest) -> Manifest:
    return each | {"metadata": each["metadata"] | {"uid": f"uid of {each['metadata']['name']}"}}


def performed(writes: tuple[Apply | Delete, ...], there: dict[Ref, Manifest]) -> dict[Ref, Manifest]:
    after = dict(there)
    for write in writes:
        if isinstance(write, Apply):
            after[ref_of(write.manifest)] = stored(write.manifest)
        else:
            del after[write.ref]
    return after


@given(WORLDS, WORLDS)
def test_a_performed_plan_leaves_nothing_to_do(desired: list[Manifest], start: list[Manifest]) -> None:
    there = {ref_of(each): stored(each) for each in start}
    after = performed(plan(desired, there), there)
    assert plan(desired, after) == ()
    assert set(after) == {ref_of(each) for each in desired}


@given(WORLDS, WORLDS, st.sets(st.sampled_from("abcd")))
def test_what_is_kept_is_never_deleted(desired: list[Manifest], start: list[Manifest], keep: set[str]) -> None:
    there = {ref_of(each): stored(each) for each in start}
    kept = frozenset(ref for ref in there if ref.name in keep)
    assert not {write.ref for write in plan(desired, there, kept) if isinstance(write, Delete)} & kept


@given(SPECS, SPECS)
def test_a_setting_that_is_taken_away_is_seen(before: dict[str, Any], after: dict[str, Any]) -> None:
    """C19: what is left of the old one would not differ from the new one otherwise."""
    there = stored(stamped(manifest("Service", "a", before)))
    writes = plan([manifest("Service", "a", after)], {ref_of(there): there})
    assert bool(writes) == (json.dumps(before, sort_keys=True) != json.dumps(after, sort_keys=True))


@given(VALUES)
def test_everything_holds_itself(value: Any) -> None:
    assert holds(value, value)


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1, "default": 2}, True, id="a default beside it"),
        pytest.param({"a": 1}, {}, False, id="gone"),
        pytest.param({"a": False}, {}, False, id="false is not absent"),
        pytest.param({"a": 0}, {"a": False}, False, id="false is not zero"),
        pytest.param([1, 2], [1, 2, 3], False, id="a plain list is whole"),
        pytest.param([{"name": "a"}], [{"name": "b"}, {"name": "a", "x": 1}], True, id="one more by name"),
        pytest.param([{"name": "a", "v": 1}], [{"name": "a", "v": 2}], False, id="by name, changed"),
        pytest.param([{"name": "v", "mountPath": "a"}], [{"name": "v", "mountPath": "b"}], False, id="mount"),
        pytest.param({"a": {"b": 1}}, {"a": None}, False, id="null"),
    ],
)  # fmt: skip
def test_what_holds(wanted: Any, found: Any, expected: bool) -> None:
    assert holds(wanted, found) is expected


def test_a_job_is_written_once() -> None:
    there = stored(manifest("Job", "a", {"image": "1"}))
    assert plan([manifest("Job", "a", {"image": "2"})], {ref_of(there): there}) == ()


def test_an_object_is_meant_by_its_uid() -> None:
    there = stored(manifest("Service", "a", {"p": 1}))
    (write,) = plan([manifest("Service", "a", {"p": 2})], {ref_of(there): there})
    assert isinstance(write, Apply)
    assert write.uid == "uid of a"
