"""What the chart installs."""

import json
from typing import Any

import pytest
import yaml
from helm_chart import CHART, NAMESPACE, Helm, Rendered
from spec_examples import merged

from tailhold_api import names
from tailhold_api.chart import EXAMPLE
from tailhold_api.codec import load
from tailhold_api.crd import custom_resource_definition
from tailhold_api.spec import Spec

MIRROR = "registry.intra.example:5000"
MONITORING = ("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor,monitoring.coreos.com/v1/PodMonitor")
EVERYTHING: dict[str, Any] = {
    "replicas": 2,
    "rbac": {"aggregate": True},
    "podDisruptionBudget": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podMonitor": {"enabled": True},
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-{{ .Release.Name }}"}},
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: text-{{ .Release.Name }}\n",
    ],
}


@pytest.fixture(scope="module")
def defaults(helm: Helm) -> Rendered:
    return helm.render()


def test_the_defaults_install_these_kinds(defaults: Rendered) -> None:
    assert sorted(manifest["kind"] for manifest in defaults.manifests) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Deployment",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ]


def test_everything_switched_on_renders(helm: Helm) -> None:
    rendered = helm.render(*MONITORING, values=EVERYTHING)
    assert {"PodDisruptionBudget", "ServiceMonitor", "PodMonitor", "Service"} <= {m["kind"] for m in rendered.manifests}
    assert [m["metadata"]["name"] for m in rendered.of("ConfigMap")] == ["of-r", "text-r"]
    assert rendered.one("ServiceMonitor")["metadata"]["labels"]["release"] == "prometheus"


def test_monitors_are_left_out_where_their_api_is_not_served(helm: Helm) -> None:
    rendered = helm.render(values=EVERYTHING)
    assert not rendered.of("ServiceMonitor") + rendered.of("PodMonitor") + rendered.of("Service")


def test_a_monitor_scrapes_a_port_that_the_pod_has(helm: Helm) -> None:
    rendered = helm.render(*MONITORING, values=EVERYTHING)
    ports = {port["name"]: port["containerPort"] for port in rendered.container["ports"]}
    assert rendered.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"] in ports
    (port,) = rendered.one("Service")["spec"]["ports"]
    assert port["targetPort"] in ports
    assert rendered.one("ServiceMonitor")["spec"]["endpoints"][0]["port"] == port["name"]


def test_every_object_has_the_recommended_labels(helm: Helm) -> None:
    rendered = helm.render(*MONITORING, values=EVERYTHING | {"labels": {"team": "search"}})
    for manifest in rendered.manifests:
        if manifest["kind"] != "ConfigMap":  # the user's own
            labels = manifest["metadata"]["labels"]
            assert labels["app.kubernetes.io/name"] == "tailhold"
            assert labels["app.kubernetes.io/managed-by"] == "Helm"
            assert labels["team"] == "search", manifest["kind"]


def test_a_label_of_ours_is_not_overwritten(helm: Helm) -> None:
    values = {"podLabels": {"app.kubernetes.io/name": "mine", "a": "pod"}, "labels": {"a": "all"}}
    rendered = helm.render(values=values)
    labels = rendered.pod["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "tailhold"
    assert labels["a"] == "pod"
    assert rendered.one("Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_each_namespaced_object_names_its_namespace(helm: Helm) -> None:
    cluster_wide = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "ConfigMap")
    for manifest in helm.render(*MONITORING, values=EVERYTHING).manifests:
        if manifest["kind"] not in cluster_wide:
            assert manifest["metadata"]["namespace"] == NAMESPACE


@pytest.mark.parametrize("values", [{}, {"image": {"registry": ""}, "server": {"image": {"registry": ""}}}])
def test_one_registry_and_one_pull_secret_reach_every_image(helm: Helm, values: dict[str, Any]) -> None:
    common = {"global": {"imageRegistry": MIRROR, "imagePullSecrets": [{"name": "intra"}]}}
    secrets = {"imagePullSecrets": [{"name": "own"}, {"name": "intra"}]}
    rendered = helm.render(*MONITORING, values=EVERYTHING | values | common | secrets)
    names_of_images = [rendered.container["image"], rendered.env["TAILHOLD_SERVER_IMAGE"]]
    assert all(name.startswith(f"{MIRROR}/tailhold/") for name in names_of_images)
    whole = json.dumps([m for m in rendered.manifests if m["kind"] != "CustomResourceDefinition"])
    assert "ghcr.io" not in whole
    assert whole.count(f"{MIRROR}/") == len(names_of_images), "an image that this test does not know of"
    assert rendered.pod["spec"]["imagePullSecrets"] == [{"name": "intra"}, {"name": "own"}]
    assert json.loads(rendered.env["TAILHOLD_SERVER_IMAGE_PULL_SECRETS"]) == ["intra", "own"]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({"tag": "1.10"}, "ghcr.io/tailhold/operator:1.10"),
        ({"tag": "0123"}, "ghcr.io/tailhold/operator:0123"),
        ({"digest": f"sha256:{'a' * 64}", "tag": "1"}, f"ghcr.io/tailhold/operator@sha256:{'a' * 64}"),
        ({"registry": "", "repository": "local/it", "tag": "1"}, "local/it:1"),
        ({"registry": "localhost", "tag": "abc"}, "localhost/tailhold/operator:abc"),
    ],
)
def test_an_image_is_named_by_its_parts(helm: Helm, image: dict[str, str], name: str) -> None:
    rendered = helm.render(values={"image": image, "server": {"image": image}})
    assert rendered.container["image"] == name
    assert rendered.env["TAILHOLD_SERVER_IMAGE"] == name.replace("tailhold/operator", "tailhold/server")


def test_the_operators_pod_is_restricted(defaults: Rendered) -> None:
    spec, container = defaults.pod["spec"], defaults.container
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert all(set(volume) <= {"name", "emptyDir"} for volume in spec["volumes"])
    assert all(volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"])
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    assert container["livenessProbe"]
    assert container["readinessProbe"]
    assert not container["image"].endswith(":latest")
    assert defaults.one("ServiceAccount")["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is True
    assert spec["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("value", "path", "given"),
    [
        ("resources", ("containers", 0, "resources"), {"limits": {"cpu": 2}}),
        ("tolerations", ("tolerations",), [{"key": "dedicated", "operator": "Exists"}]),
        ("affinity", ("affinity",), {"nodeAffinity": {}}),
        ("topologySpreadConstraints", ("topologySpreadConstraints",), [{"maxSkew": 1}]),
        ("priorityClassName", ("priorityClassName",), "system-cluster-critical"),
        ("runtimeClassName", ("runtimeClassName",), "gvisor"),
        ("podSecurityContext", ("securityContext",), {"runAsUser": 1000650000}),
        ("securityContext", ("containers", 0, "securityContext"), {"privileged": False}),
        ("extraEnvFrom", ("containers", 0, "envFrom"), [{"secretRef": {"name": "proxy"}}]),
        ("extraVolumes", ("volumes", 1), [{"name": "ca", "configMap": {"name": "ca"}}]),
        ("extraVolumeMounts", ("containers", 0, "volumeMounts", 1), [{"name": "ca", "mountPath": "/ca"}]),
    ],
)
def test_a_part_of_the_pod_arrives_as_it_was_given(
    helm: Helm, value: str, path: tuple[str | int, ...], given: Any
) -> None:
    found: Any = helm.render(values={value: given}).pod["spec"]
    for step in path:
        found = found[step]
    arrived = [found] if isinstance(path[-1], int) else found
    assert arrived == given if not isinstance(given, dict) else merged(arrived, given) == arrived


def test_what_index_jobs_and_server_pods_get_is_handed_to_the_operator(helm: Helm) -> None:
    extra = {
        "extraVolumes": [{"name": "site", "hostPath": {"path": "/opt/site", "type": "Directory"}}],
        "extraVolumeMounts": [{"name": "site", "mountPath": "/opt/tailhold/site", "readOnly": True}],
        "extraEnv": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}],
    }
    rendered = helm.render(values={"server": extra})
    assert json.loads(rendered.env["TAILHOLD_SERVER_EXTRA"]) == {
        "volumes": extra["extraVolumes"],
        "volumeMounts": extra["extraVolumeMounts"],
        "env": extra["extraEnv"],
    }


@pytest.mark.parametrize(
    ("budget", "spec"),
    [
        ({}, {"minAvailable": 1}),
        ({"minAvailable": "50%"}, {"minAvailable": "50%"}),
        ({"maxUnavailable": 1}, {"maxUnavailable": 1}),
        ({"maxUnavailable": 0, "minAvailable": None}, {"maxUnavailable": 0}),
    ],
)
def test_a_disruption_budget_has_one_of_its_two_numbers(
    helm: Helm, budget: dict[str, Any], spec: dict[str, Any]
) -> None:
    found = helm.render(values={"podDisruptionBudget": {"enabled": True} | budget}).one("PodDisruptionBudget")["spec"]
    assert {key: found[key] for key in ("minAvailable", "maxUnavailable") if key in found} == spec


def test_the_crd_is_the_generated_one_and_is_kept(helm: Helm, defaults: Rendered) -> None:
    crd = defaults.one("CustomResourceDefinition")
    assert crd["spec"] == custom_resource_definition()["spec"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    unkept = helm.render(values={"crds": {"keep": False}}).one("CustomResourceDefinition")
    assert "annotations" not in unkept["metadata"]
    assert not helm.render(values={"crds": {"enabled": False}}).of("CustomResourceDefinition")
    assert not (CHART / "crds").exists(), "helm never upgrades what is in crds/"


def test_the_crd_fits_the_annotation_of_a_client_side_apply(defaults: Rendered) -> None:
    assert len(json.dumps(defaults.one("CustomResourceDefinition"))) < 200 * 1024


@pytest.mark.parametrize(
    ("arguments", "values", "namespace", "gpus"),
    [
        ((), {}, "default", 0),
        (("--namespace", "elsewhere"), {"watchNamespaces": ["team-a", "team-b"]}, "team-a", 0),
    ],
)
def test_the_notes_have_a_pipeline_that_is_accepted(
    helm: Helm, arguments: tuple[str, ...], values: dict[str, Any], namespace: str, gpus: int
) -> None:
    notes = helm.notes(*arguments, values=values)
    start = f"kubectl -n {namespace} apply -f - <<'EOF'\n"
    pipeline = yaml.safe_load(notes.partition(start)[2].partition("\nEOF\n")[0])
    assert (pipeline["apiVersion"], pipeline["kind"]) == (names.API_VERSION, names.KIND)
    assert load(Spec, json.dumps(pipeline["spec"])).placement.gpu.count == gpus
    assert notes.count("kubectl ") >= 5


def test_the_example_of_artifact_hub_is_accepted() -> None:
    load(Spec, json.dumps(EXAMPLE["spec"]))
    annotations = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]
    assert yaml.safe_load(annotations["artifacthub.io/crdsExamples"]) == [EXAMPLE]
    (crd,) = yaml.safe_load(annotations["artifacthub.io/crds"])
    assert crd["name"] == f"{names.PLURAL}.{names.GROUP}"
