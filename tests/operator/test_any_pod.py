"""What the API server takes of `spec.pod` and `placement`, it takes of the pods made from them."""

import re
from typing import Any

import httpx
import pytest
import worlds
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_taken import APPLY, HEADERS, NAMESPACE, admin

from tailhold.rules import broken
from tailhold_api import codec
from tailhold_api.crd import structural
from tailhold_api.inspection import inspection_part
from tailhold_api.parts import SHORT
from tailhold_api.spec import Spec
from tailhold_operator.kinds import Manifest, path_of
from tailhold_operator.plan import holds
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.index import JobMeans, render_job
from tailhold_operator.render.inspection import render_inspection_job
from tailhold_operator.render.server import render_deployment, render_template
from tailhold_operator.revisions import asked_for

__all__ = ["admin"]
SCHEMA = structural(Spec)["properties"]
LABEL_KEYS = st.sampled_from(["team", "example.com/team", "a.b/c_d.E", "9/9"])
WORDS = st.sampled_from(["a", "a1", "x-y", "Z", "value", "1"])
GPU = {"key": "nvidia.com/gpu.present", "operator": "Exists"}
IDENTITY = Identity("team", worlds.NAME, "00000000-0000-4000-8000-000000000000")


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that the schema alone would take."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object" if "properties" in schema:
            return objects(schema)
        case "object":
            return st.dictionaries(LABEL_KEYS, WORDS, max_size=2)
        case "array":
            return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "boolean":
            return st.booleans()
        case _:
            return texts(schema)


def objects(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    required = schema.get("required", ())
    fields = {name: values(each) for name, each in schema["properties"].items()}
    optional = {name: each for name, each in fields.items() if name not in required}
    return st.fixed_dictionaries({name: fields[name] for name in required}, optional=optional)


def texts(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    longest = schema.get("maxLength", 100)
    if "pattern" not in schema:
        return st.one_of(WORDS, st.just("x" * longest))
    known = [each for each in ("a", "a-1", "a.b", "/a", "/a/.b", "s0:c1", "5") if re.fullmatch(schema["pattern"], each)]
    drawn = st.from_regex(re.compile(schema["pattern"], re.ASCII), fullmatch=True).filter(lambda x: len(x) <= longest)
    return st.one_of(drawn, st.sampled_from(known)) if known else drawn


def owners(body: dict[str, Any]) -> list[Manifest]:
    spec = codec.load_lenient(Spec, body)
    asked = asked_for(IDENTITY.name, spec, "")
    assert asked.build is not None
    part, build = asked.pod_digest[:SHORT], asked.build_digest[:SHORT]
    means = JobMeans("server", 4096, 500, 3, rules=spec.pod, cache=spec.server.cache)
    return [
        render_deployment(IDENTITY, part, render_template(asked.pod, IDENTITY, worlds.SETUP), 1),
        render_job(asked.build, build, IDENTITY, worlds.SETUP, means),
        render_inspection_job(inspection_part(asked.pod, "server"), asked.pod, IDENTITY, worlds.SETUP),
    ]


def taken(admin: httpx.Client, body: dict[str, Any]) -> None:
    assume(not list(broken(codec.load_lenient(Spec, body))))
    for owner in owners(body):
        applied(admin, owner)


def applied(admin: httpx.Client, owner: Manifest) -> None:
    path = path_of(owner["kind"], NAMESPACE, owner["metadata"]["name"])
    answer = admin.patch(path, json=owner, params=APPLY, headers=HEADERS)
    assert answer.is_success, answer.text
    assert holds(owner, answer.json()) or owner["kind"] == "Job"


FIELDS = sorted(SCHEMA["pod"]["properties"])


@pytest.mark.parametrize("field", FIELDS)
@given(data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_pod_is_taken(admin: httpx.Client, field: str, data: st.DataObject) -> None:
    pod = {field: data.draw(values(SCHEMA["pod"]["properties"][field]))}
    pod |= {"serviceAccountName": "a"} if field == "automountServiceAccountToken" else {}
    taken(admin, worlds.spec(pod=pod))


@pytest.mark.parametrize("field", ["affinity", "nodeSelector", "runtimeClassName", "tolerations"])
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_placement_is_taken(admin: httpx.Client, field: str, data: st.DataObject) -> None:
    placement = {field: data.draw(values(SCHEMA["placement"]["properties"][field]))}
    taken(admin, worlds.spec(placement=placement))


def test_an_inspection_takes_the_nodes_of_the_pods_and_minds_no_neighbours() -> None:
    """The one node that fits may have the pods of the revision before."""
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [GPU]}]}}
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    both = {"nodeAffinity": nodes, "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    _, _, job = owners(worlds.spec(placement={"affinity": both}))
    assert job["spec"]["template"]["spec"]["affinity"] == {"nodeAffinity": nodes}
