"""What `tailhold serve` checks before it builds anything, and what it says once it is ready."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from program_process import free_port
from rag_server import store_snapshot
from spec_examples import MINIMAL, merged

from tailhold.notice import Listening, notice
from tailhold.places import ServeFailedError
from tailhold.preflight import check
from tailhold_api.codec import load
from tailhold_api.spec import Spec
from tailhold_server.settings import ServerSettings

KEYS = {"server": {"auth": {"apiKeys": {"secretName": "clients"}}}}
TLS = {"server": {"tls": {"secretName": "tls"}}}
MUTUAL = {"server": {"tls": {"secretName": "tls", "clientCaSecretName": "ours"}}}


def spec(**change: Any) -> Spec:
    return load(Spec, json.dumps(merged(MINIMAL, change)))


STAND_IN = {"name": "TAILHOLD_STAND_IN", "value": "startSeconds=3"}


def stood_in(**change: Any) -> Spec:
    """No model has to be there."""
    return spec(**merged(change, {"pod": {"env": [STAND_IN]}}))


def settings(folder: Path) -> ServerSettings:
    return ServerSettings(claims=folder / "claims", secrets=folder / "secrets")


def missing(folder: Path, wanted: Spec, ports: dict[str, int] | None = None) -> str:
    with pytest.raises(ServeFailedError) as caught:
        check(wanted, "127.0.0.1", ports or {}, settings(folder))
    return str(caught.value)


def commands(said: str) -> list[str]:
    """The indented lines, which a person would paste."""
    return [line.strip() for line in said.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(("change", "name"), [(KEYS, "clients/ada"), (TLS, "tls/tls.crt")])
def test_a_secret_that_is_missing_is_named_with_the_commands_that_make_it(
    tmp_path: Path, change: dict[str, Any], name: str
) -> None:
    """The commands are run: a page of help that does not work is worse than none."""
    folder = tmp_path / "with a blank"
    said = missing(folder, stood_in(**change))
    assert f"below {folder}/secrets (TAILHOLD_SECRETS names another)" in said
    subprocess.run(["bash", "-ec", commands(said)[0]], check=True, capture_output=True)
    assert (folder / "secrets" / name).stat().st_mode & 0o077 == 0, "for nobody else"
    check(stood_in(**change), "127.0.0.1", {}, settings(folder))


def test_a_key_that_cannot_be_used_is_said_without_a_word_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "secrets" / "clients"
    folder.mkdir(parents=True)
    assert "holds no key" in missing(tmp_path, stood_in(**KEYS))
    (folder / "bob").write_text("hunter2")
    said = missing(tmp_path, stood_in(**KEYS))
    assert "the key of client `bob` has to have at least 16 characters" in said
    assert "hunter2" not in said


def test_the_authorities_of_clients_are_looked_for_too(tmp_path: Path) -> None:
    subprocess.run(["bash", "-ec", commands(missing(tmp_path, stood_in(**TLS)))[0]], check=True, capture_output=True)
    said = missing(tmp_path, stood_in(**MUTUAL))
    assert f"{tmp_path}/secrets/ours/ca.crt cannot be read" in said
    assert f"The authorities of your clients belong into {tmp_path}/secrets/ours/ca.crt" in said


def test_everything_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    said = missing(tmp_path, spec(**merged(KEYS, TLS)), {"--port": 4, "--internal-port": 4})
    for words in (
        "server.auth.apiKeys: ",
        "server.tls: ",
        f"generator.model: claim models is not at {tmp_path}/claims/models. Claims are folders",
        "embedder.model: ",
        "--internal-port 4: that is --port already",
        "python -m tailhold.demo",
    ):
        assert words in said
    (tmp_path / "claims" / "models" / "smollm2").mkdir(parents=True)
    assert f"there is no {tmp_path}/claims/models/smollm2/config.json" in missing(tmp_path, spec())


def test_a_port_that_is_taken_is_named_by_its_option(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert missing(tmp_path, stood_in(), {"--grpc-port": port}).startswith(f"--grpc-port {port}: cannot listen on")
        check(stood_in(server={"grpc": {"enabled": False}}), "127.0.0.1", {"--grpc-port": port}, settings(tmp_path))


def test_an_issuer_that_cannot_be_reached_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = f"http://127.0.0.1:{free_port()}/realm"
    auth = {"auth": {"oidc": {"issuer": issuer, "audience": "rag"}}}
    check(stood_in(server=auth), "127.0.0.1", {}, settings(tmp_path))
    assert f"keys of {issuer} cannot be had, nobody can be let in until they are" in caplog.text


# Ready


AT = Listening("0.0.0.0", 8080, 8081, 9000)


def lines(wanted: Spec, secrets: Path, at: Listening = AT) -> dict[str, str]:
    rows = [line.split(maxsplit=1) for line in notice("docs", wanted.server, at, secrets).splitlines()[2:] if line]
    return dict(rows)


def test_the_lines_can_be_pasted_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/tailhold")
    shown = lines(stood_in(), tmp_path)
    assert shown["ask"] == 'tailhold ask --url http://127.0.0.1:8080/v1 "What are these documents about?"'
    assert (shown["OpenAI"], shown["gRPC"]) == ("http://127.0.0.1:8080/v1", "127.0.0.1:9000")
    assert shown["metrics"] == "http://127.0.0.1:8081/metrics"
    assert "gRPC" not in lines(stood_in(server={"grpc": {"enabled": False}}), tmp_path)
    assert lines(stood_in(), tmp_path, Listening("::1", 1, 2, 3))["OpenAI"] == "http://[::1]:1/v1"
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/tailhold", "serve"])
    assert lines(stood_in(), tmp_path)["ask"].startswith(".venv/bin/tailhold ask --url ")


def test_keys_and_certificates_are_named_and_not_shown(tmp_path: Path) -> None:
    secured = stood_in(**merged(KEYS, TLS))
    for command in commands(missing(tmp_path, secured)):
        if command.startswith("("):
            subprocess.run(["bash", "-ec", command], check=True, capture_output=True)
    secrets = tmp_path / "secrets"
    shown = lines(secured, secrets)
    assert shown["ask"].startswith(f"TAILHOLD_API_KEY=$(cat {secrets}/clients/ada) ")
    assert f"--url https://127.0.0.1:8080/v1 --ca-file {secrets}/tls/tls.crt " in shown["ask"]
    assert (secrets / "clients" / "ada").read_text().strip() not in "".join(shown.values())
    assert shown["gRPC"] == "127.0.0.1:9000 (TLS)"
    (secrets / "clients" / "ada").write_text("sha256:" + "0" * 64)
    assert lines(secured, secrets)["ask"].startswith("TAILHOLD_API_KEY=... ")


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A pipeline over a snapshot that was built elsewhere."""
    built = store_snapshot(tmp_path / "claims" / "indexes")
    given = {"source": {"pvc": {"claimName": "indexes", "path": "snapshots"}}, "digest": built}
    whole = {name: MINIMAL[name] for name in ("generator",)} | {"index": {"snapshot": given}}
    whole |= {"embedder": {**MINIMAL["embedder"], "dimension": 64}, "pod": {"env": [STAND_IN]}}
    head = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "docs"}}
    path = tmp_path / "docs.yaml"
    path.write_text(yaml.safe_dump(head | {"spec": whole}))
    return path


@pytest.fixture
def serving(tmp_path: Path, manifest: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """The real program with the stand-in engine, three seconds from being ready, and its port for clients."""
    port = free_port()
    own = {"TAILHOLD_CACHE": str(tmp_path)}
    path = os.pathsep.join(each for each in sys.path if each)
    words = ["serve", str(manifest), "--port", str(port), "--internal-port", str(port + 1), "--grpc-port"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tailhold.main", *words, str(free_port())],
        env={**os.environ, **own, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, port
    process.kill()
    process.communicate()


def asked(*words: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(each for each in sys.path if each)
    command = [sys.executable, "-m", "tailhold.main", "ask", *words]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60)


def test_who_asks_too_early_is_told_how_far_it_is_and_then_finds_the_line_to_ask_with(
    serving: tuple["subprocess.Popen[str]", int],
) -> None:
    process, port = serving
    deadline = time.monotonic() + 30
    while _phase(port + 1) != "startEngine":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    early = asked("--url", f"http://127.0.0.1:{port}/v1", "Why?")
    assert early.returncode == 1
    assert (
        f"is still starting, as http://127.0.0.1:{port + 1}/readyz says: phase startEngine; ask again" in early.stderr
    )
    assert "--url" not in early.stderr
    assert process.stdout
    shown = [process.stdout.readline() for _ in range(3)]
    assert shown[:2] == ["\n", "`docs` is ready\n"]
    words = shlex.split(shown[2])
    answer = asked(*words[words.index("--url") :])
    assert answer.returncode == 0, answer.stderr


def _phase(port: int) -> str:
    try:
        return str(httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).json()["phase"])
    except httpx.TransportError:
        return ""
