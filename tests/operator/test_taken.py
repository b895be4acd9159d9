"""What is rendered is taken by a real API server as it is, and its pods pass the level "restricted"."""

import copy
from collections.abc import Iterator

import httpx
import pytest
from api_server import ApiServer
from test_render import CASES, rendered

from tailhold_operator.kinds import Manifest, path_of
from tailhold_operator.plan import holds, stamped

NAMESPACE = "team"
APPLY = {"fieldManager": "test", "force": "true", "fieldValidation": "Strict", "dryRun": "All"}
HEADERS = {"Content-Type": "application/apply-patch+yaml"}


@pytest.fixture(scope="module")
def admin(api: ApiServer) -> Iterator[httpx.Client]:
    """In a namespace of the level "restricted" where every class is there."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    with api.client() as client:
        put(client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        put(client, classes, {"metadata": {"name": "serving"}, "value": 1000})
        runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
        put(client, runtimes, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
        yield client


def put(client: httpx.Client, path: str, body: Manifest) -> None:
    made = client.post(path, json=body)
    assert made.is_success or made.status_code == httpx.codes.CONFLICT, made.text


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_taken_and_comes_back_as_it_was_written(admin: httpx.Client, case: str) -> None:
    """C15: what the server would drop or write otherwise would be written again at each look."""
    for manifest in map(stamped, rendered(case)):
        path = path_of(manifest["kind"], NAMESPACE, manifest["metadata"]["name"])
        answer = admin.patch(path, json=manifest, params=APPLY, headers=HEADERS)
        assert answer.is_success, answer.text
        assert holds(manifest, answer.json()) or manifest["kind"] == "Job"


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
@pytest.mark.parametrize("case", CASES)
def test_pods_pass_the_restricted_level(admin: httpx.Client, case: str, kind: str) -> None:
    (owner,) = (each for each in rendered(case) if each["kind"] == kind)
    pod = copy.deepcopy(owner["spec"]["template"]) | {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"]["name"] = "one"
    for volume in pod["spec"]["volumes"]:  # a local cluster's settings lend the machine's folders: not ours to judge
        volume |= {"emptyDir": {}} if volume.pop("hostPath", None) else {}
    put(admin, path_of("ServiceAccount", NAMESPACE), {"metadata": {"name": pod["spec"]["serviceAccountName"]}})
    answer = admin.post(path_of("Pod", NAMESPACE), json=pod, params={"dryRun": "All", "fieldValidation": "Strict"})
    assert answer.is_success, answer.text
