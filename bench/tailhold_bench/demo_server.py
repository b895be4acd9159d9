"""`tailhold serve` of the demo's models with the real vLLM, for benches on this machine's CPU."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tailhold.demo import EMBEDDER, GENERATOR, ensure_models
from tailhold.places import cache_folder

_PACKAGES = ("crds", "operator", "server", "cli", "local", "bench")
_SERVE = (
    "import inspect, sys; from pathlib import Path; from tailhold.serve import serve; a = sys.argv[1:]\n"
    "rpc = {'grpc_port': int(a[3])} if 'grpc_port' in inspect.signature(serve).parameters else {}\n"
    "if __name__ == '__main__': sys.exit(serve(Path(a[0]), None, None, '127.0.0.1', int(a[1]), int(a[2]), **rpc))"
)
"""Trees of before gRPC have no such port."""
_NOTES = {
    "hours.md": "# Office hours\n\nThe office closes at 18:00 and opens at eight.\n",
    "badges.md": "# Badges\n\nBadges of visitors are renewed in May, at the reception.\n",
    "network.md": "# Network\n\nThe wireless network is called Heron and has no password.\n",
}
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Served:
    """A server that is ready."""

    url: str
    internal_url: str
    seconds: float
    """From its process's start to ready."""

    def tuning(self) -> dict[str, Any]:
        """What is in force and was measured."""
        told: dict[str, Any] = httpx.get(f"{self.internal_url}/v1/tuning", trust_env=False).json()
        return told


def prepare(folder: Path, **parts: Any) -> None:
    """A manifest with some notes; `parts` are merged into its spec, a block at a time."""
    claims, maps = folder / "claims", folder / "configmaps" / "notes"
    claims.mkdir()
    maps.mkdir(parents=True)
    (claims / "models").symlink_to(ensure_models(cache_folder())[0].parent)
    for name, text in _NOTES.items():
        (maps / name).write_text(text)
    spec: dict[str, Any] = {
        "generator": {"model": {"pvc": {"claimName": "models", "path": GENERATOR}}},
        "embedder": {"model": {"pvc": {"claimName": "models", "path": EMBEDDER}}, "dimension": 384},
        "index": {"store": {"claimName": "snapshots"}},
        "corpus": {"sources": [{"name": "notes", "configMap": {"name": "notes"}}]},
        "engine": {"enforceEager": True, "kvCacheMebibytes": 512, "maxModelTokens": 2048, "blockSizeTokens": 32},
        "placement": {"gpu": {"count": 0}, "cpu": {"cores": 2}},
    }
    for name, block in parts.items():
        spec[name] = {**spec.get(name, {}), **block}
    document = {"apiVersion": "tailhold.dev/v1alpha1", "kind": "RagPipeline", "metadata": {"name": "notes"}}
    (folder / "pipeline.yaml").write_text(yaml.safe_dump({**document, "spec": spec}))


@contextmanager
def serving(folder: Path, tree: Path = ROOT) -> Iterator[Served]:
    """The server of a tree of sources over a prepared folder, until the block ends."""
    port, internal, rpc = _free_port(), _free_port(), _free_port()
    environment = {
        "TAILHOLD_CLAIMS": str(folder / "claims"),
        "TAILHOLD_CONFIG_MAPS": str(folder / "configmaps"),
        "PYTHONPATH": os.pathsep.join(str(tree / name) for name in _PACKAGES),
    }
    began = time.monotonic()
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder / "pipeline.yaml"), str(port), str(internal), str(rpc)],
            env={**os.environ, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        served = Served(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{internal}", 0.0)
        while not _is_ready(served):
            if process.poll() is not None:
                raise SystemExit((folder / "log").read_text()[-3000:])
            time.sleep(0.05)
        yield Served(served.url, served.internal_url, time.monotonic() - began)
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(served: Served) -> bool:
    try:
        return httpx.get(f"{served.internal_url}/readyz", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
