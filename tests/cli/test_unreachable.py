"""Commands that need a cluster, and find none."""

import shutil
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailhold.main import app
from tailhold.target import CommandError, Target, UnreachableError, refused

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "ragpipeline.yaml")
LOG = 'E1203 05:15:54.230311     614 memcache.go:265] "Unhandled Error" err="connection refused"\n'
REFUSED = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"


@pytest.mark.parametrize(
    "said",
    [
        LOG * 5 + REFUSED,
        "Unable to connect to the server: dial tcp: lookup nohost.invalid on 10.0.0.1:53: no such host",
        "Error in configuration: context was not found for specified context: zz",
        'error: context "zz" does not exist',
        "Error: Kubernetes cluster unreachable: Get http://localhost:8080/version: connection refused",
        'error: error loading config file "/tmp": read /tmp: is a directory',
    ],
)
def test_no_cluster_is_one_message_with_the_next_step(said: str, tmp_path: Path) -> None:
    error = refused(("kubectl", "get"), said, {"HOME": str(tmp_path)})
    assert isinstance(error, UnreachableError)
    told = str(error)
    assert told.startswith("no cluster is reached: ")
    assert not any(word in told for word in ("memcache", "did you specify"))
    assert f"KUBECONFIG is not set, and there is no {tmp_path}/.kube/config. Set it, or name a context" in told
    assert "KUBECONFIG is /a/b." in str(refused(("kubectl",), said, {"KUBECONFIG": "/a/b"}))


def test_what_a_cluster_says_is_told_as_it_is() -> None:
    error = refused(("kubectl", "apply", "-f", "-", "--server-side"), LOG + "denied: topK must be 1 or more\n", {})
    assert (type(error), str(error)) == (CommandError, "kubectl apply -f - ...: denied: topK must be 1 or more")
    assert "connection refused" in str(refused(("kubectl",), LOG, {})), "better than nothing"


def test_a_cluster_without_tailhold_is_told_so() -> None:
    error = refused(("kubectl", "get"), 'error: the server doesn\'t have a resource type "ragpipelines"', {})
    assert "install Tailhold there: `tailhold up --context" in str(error)


def fake(folder: Path, *lines: str) -> Path:
    """A kubectl that says these lines on its standard error and fails."""
    program = folder / "kubectl"
    program.write_text("#!/bin/sh\ncat >&2 <<'.'\n" + "\n".join(lines) + "\n.\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_every_call_goes_that_way(tmp_path: Path) -> None:
    target = Target(str(fake(tmp_path, LOG + REFUSED)), "helm", {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    for call in (lambda: target.get("nodes"), lambda: target.kubectl("version"), lambda: target.apply({})):
        with pytest.raises(UnreachableError, match="no cluster is reached: The connection to the server localhost"):
            call()


@pytest.mark.parametrize("installed", [True, False])
def test_a_plan_without_a_cluster_names_the_file_to_compare_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    found = str(fake(tmp_path, LOG + REFUSED)) if installed else None
    monkeypatch.setattr(shutil, "which", lambda _: found)
    done = CliRunner().invoke(app, ["plan", "-f", EXAMPLE])
    assert isinstance(done.exception, UnreachableError)
    assert "Without a cluster: --against FILE" in str(done.exception)
    assert ("kubectl is not on PATH" in str(done.exception)) != installed
