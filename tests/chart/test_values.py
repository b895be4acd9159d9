"""What may be set, and what is refused by name."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from helm_chart import CHART, Helm

from tailhold_api import chart

SCHEMA = chart.values_schema()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_generated_files_are_current() -> None:
    for path, text in chart.chart_files().items():
        assert (chart.ROOT / path).read_text() == text, f"run scripts/generate: {path}"


def leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in values.items():
        child = schema.get("properties", {}).get(name)
        assert child, f"{path}{name} is not in the schema"
        yield f"{path}{name}", child
        if isinstance(value, dict) and child.get("properties"):
            yield from leaves(value, child, f"{path}{name}.")


def test_every_value_is_in_the_schema_and_documented() -> None:
    found = dict(leaves(VALUES, SCHEMA))
    assert all(schema.get("description") for schema in found.values())
    lines = (CHART / "values.yaml").read_text().splitlines()
    for before, line in itertools.pairwise(lines):
        key = line.strip().partition(":")[0]
        if key in {path.rpartition(".")[2] for path in found} and not line.startswith(" "):
            assert before.startswith("#"), f"{key} has no comment"


def test_every_value_of_the_schema_is_in_values_yaml() -> None:
    def missing(schema: dict[str, Any], values: dict[str, Any], path: str) -> Iterator[str]:
        for name, child in schema.get("properties", {}).items():
            if name not in values:
                yield f"{path}{name}"
            elif isinstance(values[name], dict):
                yield from missing(child, values[name], f"{path}{name}.")

    assert list(missing(SCHEMA, VALUES, "")) == []


def test_our_own_levels_are_closed() -> None:
    def opened(schema: dict[str, Any], path: str) -> Iterator[str]:
        if "properties" in schema:
            if schema.get("additionalProperties") is not False:
                yield path
            for name, child in schema["properties"].items():
                yield from opened(child, f"{path}.{name}")
        elif "items" in schema:
            yield from opened(schema["items"], f"{path}[]")

    assert list(opened(SCHEMA, "")) == [".global"], "other charts put their values there"


def test_lint_is_clean(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert not done.returncode, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"imge": {}}, "imge"),
        ({"image": {"tga": "1"}}, "tga"),
        ({"image": {"tag": 1.10}}, "/image/tag': got number, want string"),
        ({"server": {"image": {"tag": 12345678}}}, "/server/image/tag': got number, want string"),
        ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
        ({"replicas": "2"}, "/replicas': got string, want integer"),
        ({"replicas": -1}, "/replicas"),
        ({"resyncSeconds": 1.5}, "/resyncSeconds"),
        ({"logLevel": "INFO"}, "/logLevel"),
        ({"watchNamespaces": "team-a"}, "/watchNamespaces': got string, want array"),
        ({"extraEnv": [{"nme": "A"}]}, "nme"),
        ({"podLabels": {"a": {"b": "c"}}}, "/podLabels/a"),
        ({"podDisruptionBudget": {"minAvailable": "half"}}, "/podDisruptionBudget/minAvailable"),
        ({"crds": {"keep": "yes"}}, "/crds/keep': got string, want boolean"),
        ({"global": {"imageRegistry": 5000}}, "/global/imageRegistry"),
        ({"imagePullSecrets": ["name"]}, "/imagePullSecrets/0"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_a_mistake_is_refused_by_name(helm: Helm, values: dict[str, Any], said: str) -> None:
    assert said in helm.refusal(values=values)


@pytest.mark.parametrize(
    "setting",
    [
        "image.tag=1.10",
        "image.tag=1e10",
        "image.tag=0123",
        "extraEnv[0].name=A,extraEnv[0].value=true",
        "extraEnv[0].name=A,extraEnv[0].value=1048576",
        "extraEnv[0].name=A,extraEnv[0].value=12345678901234",
        "podAnnotations.inject=false",
        "podAnnotations.build=0123",
        "podLabels.generation=2000000",
        "labels.cost=100000000",
        "nodeSelector.gpu=true",
        "serviceAccount.annotations.role=1000000",
        "server.extraEnv[0].name=A,server.extraEnv[0].value=2000000",
    ],
)
def test_set_and_set_string_give_the_same_manifest(helm: Helm, setting: str) -> None:
    assert helm.render("--set", setting) == helm.render("--set-string", setting)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("no", "no"),
        ("off", "off"),
        (0, "0"),
        (1048576, "1048576"),
        (1000650000, "1000650000"),
        (123456789012345, "123456789012345"),
        ("0123", "0123"),
        ("1e10", "1e10"),
        ("1048576", "1048576"),
        (0.5, "0.5"),
        (-2000000, "-2000000"),
        ('say "hi"', 'say "hi"'),
        ("", ""),
        (12345678901.0, "12345678901"),
    ],
)
def test_a_scalar_from_a_values_file_arrives_as_its_text(helm: Helm, value: Any, text: str) -> None:
    env = [{"name": "A", "value": value}]
    rendered = helm.render(
        values={
            "extraEnv": env,
            "podAnnotations": {"a": value},
            "podLabels": {"a": value},
            "labels": {"b": value},
            "nodeSelector": {"a": value},
            "server": {"extraEnv": env},
        }
    )
    assert rendered.env["A"] == text
    assert json.loads(rendered.env["TAILHOLD_SERVER_EXTRA"])["env"] == [{"name": "A", "value": text}]
    metadata = rendered.pod["metadata"]
    assert (metadata["annotations"]["a"], metadata["labels"]["a"], metadata["labels"]["b"]) == (
        text,
        text,
        text,
    )
    assert rendered.pod["spec"]["nodeSelector"] == {"a": text}


def test_a_variable_without_a_value_is_empty(helm: Helm) -> None:
    rendered = helm.render(values={"extraEnv": [{"name": "A"}], "server": {"extraEnv": [{"name": "A"}]}})
    assert rendered.env["A"] == ""
    assert json.loads(rendered.env["TAILHOLD_SERVER_EXTRA"])["env"] == [{"name": "A", "value": ""}]


def test_large_numbers_stay_whole(helm: Helm) -> None:
    rendered = helm.render(
        values={
            "podSecurityContext": {"runAsUser": 1000650000, "fsGroup": 2000000},
            "terminationGracePeriodSeconds": 3600,
            "resources": {"limits": {"memory": 1073741824}},
            "server": {"extraVolumes": [{"name": "a", "emptyDir": {"sizeLimit": 1073741824}}]},
            "tolerations": [{"key": "a", "tolerationSeconds": 1000000}],
        }
    )
    security = rendered.pod["spec"]["securityContext"]
    assert (security["runAsUser"], security["fsGroup"]) == (1000650000, 2000000)
    assert rendered.pod["spec"]["terminationGracePeriodSeconds"] == 3600
    assert rendered.container["resources"]["limits"]["memory"] == 1073741824
    assert rendered.pod["spec"]["tolerations"][0]["tolerationSeconds"] == 1000000
    extra = rendered.env["TAILHOLD_SERVER_EXTRA"]
    assert json.loads(extra)["volumes"][0]["emptyDir"]["sizeLimit"] == 1073741824
    assert "e+" not in extra
