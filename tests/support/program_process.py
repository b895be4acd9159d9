"""The serving program in a process of its own, as a pod runs it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rag_server import content_part, pod_part, store_snapshot

from tailhold_api.audit import Recording
from tailhold_api.codec import dump
from tailhold_api.parts import ContentPart, PodPart

_ENTRY = "import sys; from pathlib import Path; from tailhold.serve import serve; a = sys.argv[1:]; "
_SERVE = "sys.exit(serve(None, Path(a[0]), Path(a[1]), '127.0.0.1', int(a[2]), int(a[3]), int(a[4])))"


@dataclass
class ServerProcess:
    """A running program."""

    process: "subprocess.Popen[bytes]"
    port: int
    internal_port: int
    grpc_port: int
    log: Path
    termination_log: Path

    @property
    def url(self) -> str:
        """What clients use."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def internal_url(self) -> str:
        """What kubelet uses."""
        return f"http://127.0.0.1:{self.internal_port}"

    def status(self, path: str) -> int:
        """Of a probe; 0 when nobody answers."""
        try:
            return httpx.get(self.internal_url + path, timeout=5, trust_env=False).status_code
        except httpx.TransportError:
            return 0

    def wait_until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        """Until something holds, or the test fails with the program's log."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM, and its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_program(folder: Path, claims: Path, pod: PodPart, content: ContentPart, **environment: str) -> ServerProcess:
    """The program over files, as in a pod."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pod.json").write_text(dump(pod))
    (folder / "content.json").write_text(dump(content))
    ended, log = folder / "termination-log", folder / "log"
    ended.touch()
    port, internal, grpc = free_port(), free_port(), free_port()
    files = [str(folder / name) for name in ("pod.json", "content.json")]
    settings = {
        "TAILHOLD_HANDOVER_PORT": "0",
        "TAILHOLD_CLAIMS": str(claims),
        "TAILHOLD_TERMINATION_LOG": str(ended),
        **environment,
    }
    path = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _ENTRY + _SERVE, *files, str(port), str(internal), str(grpc)],
            env={**os.environ, **path, **settings},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return ServerProcess(process, port, internal, grpc, log, ended)


Starter = Callable[..., ServerProcess]


@contextmanager
def starter(folder: Path) -> Iterator[Starter]:
    """Starts programs with stand-in models and waits until they are ready; kills what is left of them."""
    started: list[ServerProcess] = []
    digest = store_snapshot(folder / "claims" / "snapshots")

    def start(
        *,
        wait: bool = True,
        pod: PodPart | None = None,
        content: dict[str, Any] | None = None,
        recording: Recording | None = None,
        **environment: str,
    ) -> ServerProcess:
        program = start_program(
            folder / f"program{len(started)}",
            folder / "claims",
            pod or pod_part(),
            content_part(digest, recording=recording).model_copy(update=content or {}),
            **{"TAILHOLD_ENGINE": "stand-in", **environment},
        )
        started.append(program)
        if wait:
            program.wait_until(lambda: program.status("/readyz") == 200)
        return program

    yield start
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def termination(program: ServerProcess) -> dict[str, str]:
    """What it left in its termination log."""
    left: dict[str, str] = json.loads(program.termination_log.read_text())
    return left
