"""The chart on a real cluster: installed, upgraded and uninstalled by the real helm."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helm_chart import CHART
from waiting import until

from tailhold.install import Image
from tailhold.target import CommandError, Target
from tailhold_api import names
from tailhold_local import Cluster
from tailhold_local.build_images import build_image
from tailhold_local.progress import Progress

pytestmark = pytest.mark.cluster

RELEASE = "lifecycle"
NAMESPACE = "chart-lifecycle"
CRD = f"{names.PLURAL}.{names.GROUP}"
OF_EVERY_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
MADE_BY_THE_OPERATOR = {f"secret/{RELEASE}-tailhold-key", f"lease.coordination.k8s.io/{RELEASE}-tailhold"}
PIPELINE = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "kept", "namespace": NAMESPACE},
    "spec": {
        "paused": True,
        "generator": {"model": {"path": "/models/generator"}},
        "embedder": {"model": {"path": "/models/embedder"}, "dimension": 8},
        "index": {"store": {"claimName": "snapshots"}},
        "corpus": {"sources": [{"name": "none", "configMap": {"name": "none"}}]},
    },
}


@pytest.fixture(scope="module")
def values(cluster: Cluster) -> dict[str, Any]:
    """One namespace alone: the cluster may have another Tailhold, which looks after all others."""
    image = build_image("operator", Progress())
    cluster.load_image(image.archive)
    return {
        "watchNamespaces": [NAMESPACE],
        "image": Image.parse(image.reference).values("Never"),
        "podSecurityContext": {"runAsUser": 1000650000, "runAsGroup": 0},  # as OpenShift does
    }


@pytest.fixture
def target(cluster_target: Target) -> Iterator[Target]:
    """The cluster, and its CRD given back to whom it belonged."""
    owner = (cluster_target.get("crd", CRD) or {}).get("metadata", {}).get("annotations", {})
    cluster_target.kubectl("create", "namespace", NAMESPACE)
    yield cluster_target
    cluster_target.kubectl("delete", "namespace", NAMESPACE)
    if owner:
        pairs = [f"{key}={value}" for key, value in owner.items() if key.startswith("meta.helm.sh/")]
        cluster_target.kubectl("annotate", "--overwrite", "crd", CRD, *pairs)
    else:
        cluster_target.kubectl("delete", "crd", CRD, "--ignore-not-found")


def release(target: Target, *words: str, values: dict[str, Any]) -> None:
    settings = [word for key, value in values.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
    owning = ("--take-ownership", "--force-conflicts")
    target.helm(*words, RELEASE, str(CHART), "--namespace", NAMESPACE, "--wait", *owning, *settings)


def found(target: Target) -> set[str]:
    """Everything in the namespace but events, and everything of the release that has no namespace."""
    kinds = target.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
    inside = target.kubectl("get", listed, "--namespace", NAMESPACE, "-o", "name", "--ignore-not-found").split()
    roles = ",".join(("clusterroles", "clusterrolebindings", "customresourcedefinitions"))
    label = f"app.kubernetes.io/instance={RELEASE}"
    outside = target.kubectl("get", roles, "-l", label, "-o", "name").split()
    return {*inside, *outside} - OF_EVERY_NAMESPACE


def test_install_upgrade_and_uninstall_leave_the_crd_and_the_pipelines(target: Target, values: dict[str, Any]) -> None:
    release(target, "install", values=values)
    deployment = f"deployment.apps/{RELEASE}-tailhold"
    assert deployment in found(target)
    target.apply(PIPELINE)

    before = target.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name")
    release(target, "upgrade", values=values)
    assert target.kubectl("get", "pods", "-n", NAMESPACE, "-o", "name") == before, "nothing changed, nothing restarts"
    release(target, "upgrade", values=values | {"resyncSeconds": 1000, "podLabels": {"changed": True}})
    env = target.kubectl(
        "get",
        deployment,
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={..env[?(@.name=='TAILHOLD_RESYNC_SECONDS')].value}",
    )
    assert env == "1000"

    target.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    crd = f"customresourcedefinition.apiextensions.k8s.io/{CRD}"
    kept = f"{names.SINGULAR}.{names.GROUP}/kept"
    until(lambda: found(target) - MADE_BY_THE_OPERATOR, lambda left: left == {crd, kept}, seconds=60)
    release(target, "install", values=values)
    assert kept in found(target)
    target.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")


def test_a_misspelt_value_installs_nothing(target: Target, values: dict[str, Any]) -> None:
    before = found(target)
    with pytest.raises(CommandError, match="replcas"):
        release(target, "install", values=values | {"replcas": 2})
    assert found(target) == before
