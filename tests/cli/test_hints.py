"""What the commands say to somebody who has just begun."""

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from program_process import free_port
from rich.console import Console

from tailhold import purge
from tailhold.ask import AskError, Endpoint, ask, starting
from tailhold.closing import next_steps
from tailhold.demo import ensure_claims, ensure_snapshots
from tailhold.places import ServeFailedError
from tailhold.serve import serve
from tailhold_local import Cluster
from tailhold_local.layout import Layout
from tailhold_local.plan import Settings


@pytest.fixture
def missing() -> Iterator[str]:
    """A server that has nothing."""
    server = HTTPServer(("127.0.0.1", 0), _Missing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


class _Missing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404)


def test_a_url_without_v1_is_told_so(missing: str) -> None:
    with pytest.raises(AskError, match=f"ends in /v1: --url {missing}/v1$"):
        ask(Endpoint(f"{missing}/"), "Why?", on_text=print)
    with pytest.raises(AskError) as caught:
        ask(Endpoint(f"{missing}/v1"), "Why?", on_text=print)
    assert "--url" not in str(caught.value)


@pytest.mark.parametrize("is_default", [True, False])
def test_where_nothing_listens_only_who_gave_no_url_is_told_to(
    monkeypatch: pytest.MonkeyPatch, is_default: bool
) -> None:
    monkeypatch.setattr("tailhold.ask._INTERNAL_PORT", free_port())
    endpoint = Endpoint(f"http://127.0.0.1:{free_port()}/v1", is_default=is_default)
    with pytest.raises(AskError, match="nothing listens there: it may still be starting") as caught:
        ask(endpoint, "Why?", on_text=print)
    assert ("--url" in str(caught.value)) == is_default


READYZ = {"ok": False, "reason": "NotReady", "phase": "startEngine", "error": "", "progress": None}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "the server is still starting, as HERE/readyz says: phase startEngine; ask again in a while"),
        ({"progress": {"step": "fetch", "done": 3}}, 'phase startEngine, {"step": "fetch", "done": 3}; ask again'),
        ({"phase": "failed", "error": "no model"}, "the server there cannot serve, as HERE/readyz says: no model"),
        ({"ok": True, "phase": "serving"}, "the server of HERE/readyz is ready, and takes questions at another port"),
    ],
)
def test_what_the_probes_say_is_passed_on(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], words: str) -> None:
    with probes(json.dumps(READYZ | said)) as port:
        monkeypatch.setattr("tailhold.ask._INTERNAL_PORT", port)
        told = starting(Endpoint(f"http://127.0.0.1:{free_port()}/v1"))
    assert words.replace("HERE", f"http://127.0.0.1:{port}") in told


@pytest.mark.parametrize("body", ["[]", "{}", "<html>", '{"phase": 1}'])
def test_who_else_listens_there_is_not_taken_for_ours(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    with probes(body) as port:
        monkeypatch.setattr("tailhold.ask._INTERNAL_PORT", port)
        assert "nothing listens there" in starting(Endpoint(f"http://127.0.0.1:{free_port()}/v1"))


@contextmanager
def probes(body: str) -> Iterator[int]:
    """A port whose every page is this one."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503)
            self.end_headers()
            self.wfile.write(body.encode())

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_serve_without_a_manifest_asks_for_one() -> None:
    with pytest.raises(ServeFailedError, match=r"name a manifest, as in `tailhold serve examples/ragpipeline\.yaml`"):
        serve()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """pytest's own folders are too deep for the sockets of a cluster."""
    with tempfile.TemporaryDirectory(prefix="tailhold-") as folder:
        yield Path(folder)


def test_up_ends_with_the_kubeconfig_and_a_line_for_the_shell(short_path: Path) -> None:
    cluster = Cluster(Layout(short_path, "demo"), Settings(0))
    lines = next_steps(cluster, "kubectl get ragp").splitlines()
    assert lines[0] == f"kubeconfig: {short_path}/demo/kubeconfig"
    (shell,) = (line.strip() for line in lines if line.strip().startswith("export "))
    assert f'KUBECONFIG="{short_path}/demo/kubeconfig"' in shell
    assert "/bin/kubernetes-v" in shell
    assert "/bin/helm-v" in shell
    assert shell.endswith(':$PATH"')
    assert lines[-1] == "  kubectl get ragp"


@pytest.mark.parametrize("sure", [True, False])
def test_purge_shows_what_goes_and_removes_it_if_one_is_sure(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, sure: bool
) -> None:
    monkeypatch.setenv("TAILHOLD_CACHE", str(short_path / "cache"))
    monkeypatch.setenv("TAILHOLD_STATE", str(short_path / "state"))
    claims, snapshots = ensure_claims(short_path / "cache"), ensure_snapshots(short_path / "cache", "demo")
    (claims / "documents" / "mine").mkdir()
    (claims / "documents" / "debian-handbook").mkdir()
    console = Console(record=True, width=200)
    purge.purge(console, "demo", sure=lambda: sure)
    said = console.export_text()
    assert f"{snapshots.parent}  indexes of local clusters" in said
    assert "GiB in all" in said
    assert (claims / "documents" / "mine").is_dir(), "what the user put there stays"
    assert (snapshots.exists(), (claims / "documents" / "debian-handbook").exists()) == (not sure, not sure)
    assert (claims / "models").exists() == (not sure)
    assert ("did not put it there" in said) == sure
