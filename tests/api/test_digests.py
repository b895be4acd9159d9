"""Digests of specs of earlier releases. One that changes restarts every pod, or builds every index, at an upgrade."""

from typing import Any

import pytest
from spec_examples import MINIMAL, merged

from tailhold_api.codec import digest, load_lenient
from tailhold_api.parts import build_part, content_part, pod_part
from tailhold_api.spec import Spec

CONTENT = "d91ec107b3b6ccacdd0f12f3e05b60d0cbd85c64b18fd36bc82b694819fc76eb"
BUILD = "475694122bdd58fbe20451915b5f722b870282dd31674cb6d321ec6608b15adc"
CLUSTER_RULES = {
    "labels": {"example.com/team": "risk"},
    "annotations": {"a": "b"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "priorityClassName": "serving",
    "imagePullSecrets": ["mirror"],
    "spread": [{"topologyKey": "topology.kubernetes.io/zone"}],
}


@pytest.mark.parametrize(
    ("change", "pod"),
    [
        pytest.param({}, "9dc493168863248273e7ae75ecd52d88c03296e78f8945ff811c89b74ede215d", id="smallest"),
        pytest.param(
            {"pod": CLUSTER_RULES}, "6623a952bbff7ec8e53cb2861102f0883e9106dd9169a0e8893be0291d6c9efd", id="pod"
        ),
    ],
)
def test_an_upgrade_changes_no_digest(change: dict[str, Any], pod: str) -> None:
    spec = load_lenient(Spec, merged(MINIMAL, change))
    found = digest(pod_part("docs", spec)), digest(content_part(spec, "a" * 64)), digest(build_part(spec))
    assert found == (pod, CONTENT, BUILD)


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"securityContext": {"ids": "Fixed"}}, id="security"),
        pytest.param({"volumes": [], "envFrom": [], "automountServiceAccountToken": False}, id="empty"),
    ],
)
def test_a_default_that_is_written_out_is_no_change(pod: dict[str, Any]) -> None:
    bare, told = (load_lenient(Spec, merged(MINIMAL, {"pod": each})) for each in ({}, pod))
    assert digest(pod_part("docs", bare)) == digest(pod_part("docs", told))
