"""The operator's rights: these and no others."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import NAMESPACE, Helm, Rendered

from tailhold_operator.rbac import PIPELINE_RULES, RELEASE_RULES, Rule

GOLDEN = Path(__file__).parent / "golden"
NAMES = "r-tailhold"


def written(rule: Rule) -> dict[str, Any]:
    names = [name.format(release=NAMES) for name in rule.resource_names]
    role = {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
    return role | ({"resourceNames": names} if names else {})


def rights(rendered: Rendered) -> dict[str, list[dict[str, Any]]]:
    """Each role's rules, by kind, namespace and name."""
    roles = rendered.of("ClusterRole") + rendered.of("Role")
    return {
        "/".join((role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"])): role["rules"]
        for role in roles
    }


@pytest.mark.parametrize(
    ("name", "namespaces", "aggregate"),
    [("cluster", [], False), ("namespaces", ["team-b", "team-a", "team-b"], False), ("aggregated", [], True)],
)
def test_the_rights_are_the_golden_ones(helm: Helm, name: str, namespaces: list[str], aggregate: bool) -> None:
    rendered = helm.render(values={"watchNamespaces": namespaces, "rbac": {"aggregate": aggregate}})
    golden = yaml.safe_load((GOLDEN / f"rights-{name}.yaml").read_text())
    assert rights(rendered) == golden


def test_the_rights_are_those_that_the_operator_says_it_uses(helm: Helm) -> None:
    pipelines, release = [written(rule) for rule in PIPELINE_RULES], [written(rule) for rule in RELEASE_RULES]
    in_cluster, in_namespace = helm.render(), helm.render(values={"watchNamespaces": ["team-a"]})
    assert rights(in_cluster) == {
        f"ClusterRole//{NAMES}": pipelines,
        f"Role/{NAMESPACE}/{NAMES}": release,
    }
    assert rights(in_namespace) == {
        f"Role/team-a/{NAMES}-pipelines": pipelines,
        f"Role/{NAMESPACE}/{NAMES}": release,
    }


def test_namespaced_mode_has_nothing_of_the_cluster_but_the_crd(helm: Helm) -> None:
    rendered = helm.render(values={"watchNamespaces": ["team-a", NAMESPACE]})
    assert not rendered.of("ClusterRole") + rendered.of("ClusterRoleBinding")
    assert rendered.env["TAILHOLD_NAMESPACES"] == f'["{NAMESPACE}", "team-a"]'.replace(" ", "")
    without = helm.render(values={"watchNamespaces": ["team-a"], "crds": {"enabled": False}})
    assert all(manifest["metadata"].get("namespace") for manifest in without.manifests)


@pytest.mark.parametrize("namespaces", [[], ["team-a", "team-b"]])
def test_each_binding_gives_its_role_to_the_operator_alone(helm: Helm, namespaces: list[str]) -> None:
    rendered = helm.render(values={"watchNamespaces": namespaces})
    account = rendered.pod["spec"]["serviceAccountName"]
    for binding in rendered.of("ClusterRoleBinding") + rendered.of("RoleBinding"):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        role = "/".join(
            (binding["roleRef"]["kind"], binding["metadata"].get("namespace", ""), binding["roleRef"]["name"])
        )
        assert role in rights(rendered)


@pytest.mark.parametrize("namespaces", [[], ["team-a"]])
def test_nothing_is_granted_wholesale(helm: Helm, namespaces: list[str]) -> None:
    for role, rules in rights(helm.render(values={"watchNamespaces": namespaces})).items():
        for rule in rules:
            assert "*" not in str(rule), role
            if "secrets" in rule["resources"]:
                assert rule["verbs"] == ["create"] or rule["resourceNames"] == [f"{NAMES}-key"]
                assert NAMESPACE in role, "no Secret outside the operator's own namespace"


def test_without_rbac_and_account_neither_is_made(helm: Helm) -> None:
    rendered = helm.render(values={"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "given"}})
    assert rights(rendered) == {}
    assert not rendered.of("ServiceAccount") + rendered.of("RoleBinding") + rendered.of("ClusterRoleBinding")
    assert rendered.pod["spec"]["serviceAccountName"] == "given"
