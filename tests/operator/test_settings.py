"""The environment as the chart writes it."""

import pytest
from pydantic import ValidationError

from tailhold_operator.settings import OperatorSettings


def test_lists_and_objects_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "NAMESPACES": '["a","b"]',
        "SERVER_IMAGE": "registry.example/server:1",
        "SERVER_IMAGE_PULL_POLICY": "Never",
        "SERVER_IMAGE_PULL_SECRETS": '["mirror"]',
        "SERVER_EXTRA": '{"volumes":[{"name":"v"}],"volumeMounts":[{"name":"v","mountPath":"/v"}],"env":[]}',
        "RESYNC_SECONDS": "60",
        "LOG_LEVEL": "Debug",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TAILHOLD_{name}", value)
    settings = OperatorSettings()
    setup = settings.setup()
    assert settings.namespaces == ("a", "b")
    assert (setup.image, setup.pull_policy, setup.pull_secrets) == (
        "registry.example/server:1",
        "Never",
        ("mirror",),
    )
    assert setup.mounts == ({"name": "v", "mountPath": "/v"},)
    assert (settings.resync_seconds, settings.log_level) == (60, "Debug")


def test_nothing_has_to_be_given() -> None:
    assert OperatorSettings().namespaces == ()


def test_a_resync_that_would_never_rest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILHOLD_RESYNC_SECONDS", "0")
    with pytest.raises(ValidationError):
        OperatorSettings()
