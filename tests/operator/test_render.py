"""What is rendered: whole objects as golden files, and laws that hold for each of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from worlds import SETUP

from tailhold_api import codec, names
from tailhold_api.observability import Metrics, Observability
from tailhold_api.parts import SHORT
from tailhold_api.spec import Spec
from tailhold_api.variables import OWN_VARIABLES
from tailhold_api.volumes import OWN_FOLDERS
from tailhold_operator.kinds import Manifest
from tailhold_operator.render import config, front
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.index import JobMeans, render_job
from tailhold_operator.render.pod import environment
from tailhold_operator.render.quantity import mebibytes, millicores
from tailhold_operator.render.server import render_deployment, render_template
from tailhold_operator.render.setup import Setup
from tailhold_operator.revisions import asked_for

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(each.name for each in GOLDEN.iterdir() if (each / "in.yaml").exists())


def rendered(case: str) -> list[Manifest]:
    given_ = yaml.safe_load((GOLDEN / case / "in.yaml").read_text())
    identity = Identity("team", given_["name"], "00000000-0000-4000-8000-000000000000")
    spec = codec.load_lenient(Spec, given_["spec"])
    asked = asked_for(identity.name, spec, "")
    setup = (
        Setup(**{key: tuple(each) if isinstance(each, list) else each for key, each in given_["setup"].items()})
        if "setup" in given_
        else SETUP
    )
    assert asked.build is not None
    part, build = asked.pod_digest[:SHORT], asked.build_digest[:SHORT]
    index = spec.index
    image = spec.server.image or setup.image
    means = JobMeans(image, index.build_memory_mebibytes, index.build_millicores, index.keep_snapshots)
    means = means._replace(rules=spec.pod, cache=spec.server.cache)
    template = render_template(asked.pod, identity, setup)
    return [
        front.render_account(identity),
        front.render_service(identity, part, template),
        front.render_budget(identity),
        config.render_build_config(asked.build, identity),
        render_job(asked.build, build, identity, setup, means),
        render_deployment(identity, part, template, spec.replicas),
    ]


def test_no_variable_of_a_pod_is_one_that_a_spec_may_give() -> None:
    ours = {each["name"] for each in environment(Identity("team", "a", "uid"), SETUP)}
    assert {name for name in ours if not name.startswith("TAILHOLD_")} == set(OWN_VARIABLES)


@pytest.mark.parametrize("case", CASES)
def test_rendered_objects_are_the_golden_ones(case: str, update_golden: bool) -> None:
    path = GOLDEN / case / "out.yaml"
    text = yaml.safe_dump_all(rendered(case), sort_keys=True, width=110)
    if update_golden:
        path.write_text("# Written by pytest tests/operator --update-golden.\n" + text)
    assert list(yaml.safe_load_all(path.read_text())) == list(yaml.safe_load_all(text))


@pytest.fixture(params=CASES)
def objects(request: pytest.FixtureRequest) -> dict[str, Manifest]:
    return {each["kind"]: each for each in rendered(request.param)}


def pods(objects: dict[str, Manifest]) -> list[Manifest]:
    return [objects[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job")]


def server(objects: dict[str, Manifest]) -> dict[str, Any]:
    return dict(objects["Deployment"]["spec"]["template"]["spec"]["containers"][0])


def test_no_pod_gets_service_variables_or_a_token(objects: dict[str, Manifest]) -> None:
    """C105: a Service called `vllm` sets no variable of the engine."""
    for pod in pods(objects):
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False


def test_every_pod_passes_the_restricted_level(objects: dict[str, Manifest]) -> None:
    for pod in pods(objects):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"].get("runAsUser", 10001) >= 10000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }


def test_every_cache_is_on_the_one_volume_that_can_be_written_to(objects: dict[str, Manifest]) -> None:
    """C106: any user, no name, a root file system that is read-only."""
    wanted = {
        "HOME", "USER", "TMPDIR", "HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "VLLM_CACHE_ROOT",
        "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR",
    }  # fmt: skip
    for pod in pods(objects):
        env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
        assert wanted <= set(env)
        assert env["HOME"] == names.CACHE_FOLDER
        (cache,) = (each for each in pod["volumes"] if each["name"] == "cache")
        assert cache["emptyDir"]["sizeLimit"]


def test_a_start_has_all_the_time_that_the_spec_gives_it(objects: dict[str, Manifest]) -> None:
    """C100: liveness waits for the start-up probe, and no deadline of the Deployment is shorter."""
    probe = server(objects)["startupProbe"]
    budget = probe["periodSeconds"] * probe["failureThreshold"]
    assert budget >= 1800
    assert objects["Deployment"]["spec"]["progressDeadlineSeconds"] > budget
    assert "initialDelaySeconds" not in server(objects)["livenessProbe"]


def test_a_pod_has_time_to_drain(objects: dict[str, Manifest]) -> None:
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause + 60


def test_requests_never_exceed_limits_and_the_gpu_stands_in_both(objects: dict[str, Manifest]) -> None:
    """C122."""
    asked = server(objects)["resources"]
    gpus = {key: value for key, value in asked["limits"].items() if "/" in key}
    assert gpus == {key: value for key, value in asked["requests"].items() if "/" in key}
    assert len(gpus) <= 1
    assert asked["limits"]["memory"] == asked["requests"]["memory"]


def test_an_index_job_is_never_pinned(objects: dict[str, Manifest]) -> None:
    """C118."""
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] != container["resources"]["limits"]["cpu"]


def test_a_job_that_cannot_succeed_is_tried_once(objects: dict[str, Manifest]) -> None:
    first = objects["Job"]["spec"]["podFailurePolicy"]["rules"][0]
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    assert first["action"] == "FailJob"
    assert first["onExitCodes"] == {"containerName": container["name"], "operator": "In", "values": [2]}


def test_each_volume_and_mount_stands_once(objects: dict[str, Manifest]) -> None:
    for pod in pods(objects):
        volumes = [each["name"] for each in pod["volumes"]]
        mounts = [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]]
        assert len(set(volumes)) == len(volumes)
        assert len(set(mounts)) == len(mounts)
        assert {each["name"] for each in pod["containers"][0]["volumeMounts"]} == set(volumes)


def test_snapshots_are_written_by_the_job_alone(objects: dict[str, Manifest]) -> None:
    """The claim that models are fetched onto is written by both."""
    found = [
        {each["name"]: each["persistentVolumeClaim"] for each in pod["volumes"] if "persistentVolumeClaim" in each}
        for pod in pods(objects)
    ]
    server, job = (
        {each["claimName"] for each in claims.values() if not each.get("readOnly")} - {"fetched"} for claims in found
    )
    assert server == set()
    assert len(job) == 1


def test_names_and_labels_are_legal(objects: dict[str, Manifest]) -> None:
    """C10."""
    for each in objects.values():
        assert len(each["metadata"]["name"]) <= names.MAX_CHILD_NAME
        assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())
        assert each["metadata"]["ownerReferences"][0]["controller"]


@given(st.integers(1, 2**24))
def test_memory_is_written_as_the_api_server_writes_it(count: int) -> None:
    text = mebibytes(count)
    sizes = {"Mi": 1, "Gi": 1024, "Ti": 1024**2}
    number, unit = int(text[:-2]), text[-2:]
    assert number * sizes[unit] == count
    assert unit == "Ti" or number % 1024


@given(st.integers(1, 10**6))
def test_processor_time_too(count: int) -> None:
    text = millicores(count)
    assert (int(text[:-1]) if text.endswith("m") else int(text) * 1000) == count


@pytest.mark.parametrize(
    ("cpu", "requests"),
    [
        pytest.param({"cores": 4}, "4", id="C118 cores of one's own are whole, and requests are limits"),
        pytest.param({"cores": 4, "exclusive": False}, "3999m", id="shared cores are never pinned"),
        pytest.param({"cores": 4, "exclusive": False, "requestMillicores": 250}, "250m", id="as asked"),
        pytest.param({"cores": 1, "exclusive": False, "requestMillicores": 4000}, "999m", id="never above"),
    ],
)
def test_cores(cpu: dict[str, Any], requests: str) -> None:
    given_ = yaml.safe_load((GOLDEN / "smallest" / "in.yaml").read_text())
    spec = codec.load_lenient(Spec, given_["spec"] | {"placement": {"cpu": cpu}})
    asked = asked_for("handbook", spec, "")
    template = render_template(asked.pod, Identity("team", "handbook", "u"), SETUP)
    resources = template["spec"]["containers"][0]["resources"]
    assert (resources["requests"]["cpu"], resources["limits"]["cpu"]) == (requests, str(cpu["cores"]))


def corporate() -> tuple[Spec, Identity]:
    given_ = yaml.safe_load((GOLDEN / "corporate" / "in.yaml").read_text())
    return codec.load_lenient(Spec, given_["spec"]), Identity("team", "handbook", "u")


def test_a_mount_of_the_pipeline_stands_in_for_one_of_the_operators_settings() -> None:
    spec, identity = corporate()
    ours = ({"name": "bundle", "mountPath": "/etc/company"}, {"name": "bundle", "mountPath": "/etc/other"})
    setup = Setup(image="a", volumes=({"name": "bundle", "emptyDir": {}},), mounts=ours)
    template = render_template(asked_for(identity.name, spec, "").pod, identity, setup)
    mounts = {each["mountPath"]: each["name"] for each in template["spec"]["containers"][0]["volumeMounts"]}
    assert (mounts["/etc/company"], mounts["/etc/other"]) == ("extra-company-ca", "bundle")


def test_prometheus_annotations_can_be_changed_or_left_out() -> None:
    spec, identity = corporate()

    def annotations(scraped: bool, **given: str) -> dict[str, str]:
        pod = spec.pod.model_copy(update={"annotations": given})
        said = Observability(metrics=Metrics(scrape_annotations=scraped))
        part = asked_for(identity.name, spec.model_copy(update={"pod": pod, "observability": said}), "").pod
        return dict(render_template(part, identity, Setup(image="a"))["metadata"].get("annotations", {}))

    own = {"prometheus.io/scrape": "true", "prometheus.io/port": "8001", "prometheus.io/path": "/metrics"}
    assert annotations(True) == own
    assert annotations(True, **{"prometheus.io/path": "/own"}) == own | {"prometheus.io/path": "/own"}
    assert annotations(False) == {}


def test_every_folder_of_ours_is_kept_from_the_users_mounts() -> None:
    for case in ("gpu", "sources", "corporate"):  # without mounts of the operator's settings
        ours = (
            mount["mountPath"]
            for each in rendered(case)
            if each["kind"] in ("Deployment", "Job")
            for mount in each["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
            if not mount["name"].startswith("extra-")
        )
        assert [path for path in ours if not path.startswith(OWN_FOLDERS)] == []


def test_a_token_is_mounted_where_it_is_asked_for() -> None:
    spec, identity = corporate()
    pod = spec.pod.model_copy(update={"automount_service_account_token": True})
    asked = asked_for(identity.name, spec.model_copy(update={"pod": pod}), "")
    assert render_template(asked.pod, identity, SETUP)["spec"]["automountServiceAccountToken"] is True
