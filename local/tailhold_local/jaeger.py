"""Jaeger on this machine: takes traces over OTLP, keeps them in memory and gives them out."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailhold_local.binaries import JAEGER, ensure
from tailhold_local.errors import LocalError
from tailhold_local.progress import Progress

_HOST = "127.0.0.1"
_START_SECONDS = 60
_STOP_SECONDS = 10


@dataclass(frozen=True)
class Ports:
    """Where it listens, on loopback."""

    otlp: int = 4318
    """OTLP over HTTP."""
    query: int = 16686
    """Its API. A build from the Go module has no pages: those are built apart."""
    query_grpc: int = 16685


def free_ports() -> Ports:
    """Ports that nobody listens on now."""
    probes = [socket.socket() for _ in range(3)]
    try:
        for probe in probes:
            probe.bind((_HOST, 0))
        return Ports(*(probe.getsockname()[1] for probe in probes))
    finally:
        for probe in probes:
            probe.close()


def configuration(ports: Ports) -> dict[str, Any]:
    """What it reads: one receiver, one store, the query service, and no port besides."""
    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {
            "jaeger_query": {
                "enable_tracing": False,
                "storage": {"traces": "memory"},
                "http": {"endpoint": f"{_HOST}:{ports.query}"},
                "grpc": {"endpoint": f"{_HOST}:{ports.query_grpc}"},
            },
            "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 10000}}}},
        },
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{_HOST}:{ports.otlp}"}}}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
    }


@dataclass(frozen=True)
class Jaeger:
    """A Jaeger that runs."""

    ports: Ports
    process: "subprocess.Popen[bytes]"

    @property
    def otlp_url(self) -> str:
        """Where traces are sent."""
        return f"http://{_HOST}:{self.ports.otlp}"

    @property
    def url(self) -> str:
        """Where its API is."""
        return f"http://{_HOST}:{self.ports.query}"

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """A trace as its API has it, None where there is none (yet)."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/traces/{trace_id}", timeout=10) as answer:  # noqa: S310
                found = json.load(answer)["data"]
        except urllib.error.HTTPError:
            return None
        return dict(found[0]) if found else None


@contextmanager
def running(folder: Path, ports: Ports | None = None, progress: Progress | None = None) -> Iterator[Jaeger]:
    """A Jaeger with configuration and log in `folder`, built first where it is not in the cache; stopped at the end.

    Raises LocalError where it cannot be built or does not start.
    """
    program = ensure(progress or Progress(), [JAEGER])["jaeger"]
    ports = ports or free_ports()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jaeger.json").write_text(json.dumps(configuration(ports), indent=2))
    log = folder / "jaeger.log"
    with log.open("wb") as out:
        command = [program, "--config", str(folder / "jaeger.json")]
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=out, stderr=out)
    try:
        _wait_until_it_answers(Jaeger(ports, process), log)
        yield Jaeger(ports, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    """It would trace itself where OpenTelemetry's variables name a collector."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


def _wait_until_it_answers(jaeger: Jaeger, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not all(_listens(port) for port in (jaeger.ports.otlp, jaeger.ports.query)):
        if jaeger.process.poll() is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace").strip()[-800:]
            raise LocalError(f"Jaeger does not start; its log is {log} and ends:\n{end}")
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((_HOST, port)) == 0
