"""What operations on uploads take where many are there: `python -m tailhold_bench.uploads --help`.

A server with a stand-in engine, asked in this process without sockets. The files lie on the disk at --folder and all
belong to the corpus. Each operation is done one after the other, --rounds times.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from tailhold_api.parts import ContentPart, PodPart
from tailhold_api.serving import Embedder, Generator
from tailhold_api.sources import ClaimFolder, ModelSource, SnapshotStore, Uploads
from tailhold_server.app import create_app
from tailhold_server.backends import Backend
from tailhold_server.handlers.store import VectorStore
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.start import start_with
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInEngine, StandInTokenizer, stand_in_index
from tailhold_server.uploads.entry import ABOUT, ADDED, ATTRIBUTES, CONTENT, About, Described, Mark
from tailhold_server.uploads.folder import FILES, Folder
from tailhold_server.uploads.names import upload_id

_SNAPSHOT = "a" * 64
_STEP_SECONDS = 2.0
"""After which the server trusts the times of its volume."""
_STORE = "/v1/vector_stores/vs_bench"


def _fill(root: Path, files: int) -> list[str]:
    """As pods would have written them, without waiting for the disk."""
    names = []
    for number in range(files):
        sha256 = f"{number:064x}"
        names.append(name := upload_id(f"{number}.txt", sha256))
        place = root / FILES / name
        place.mkdir(parents=True)
        about = About(filename=f"{number}.txt", purpose="assistants", bytes=1, sha256=sha256, created_at=number)
        (place / CONTENT).write_bytes(b"x")
        (place / ABOUT).write_text(about.model_dump_json())
        (place / ADDED).write_text(Mark(created_at=number).model_dump_json())
        (place / ATTRIBUTES).write_text(Described(attributes={"team": "people"}).model_dump_json())
    return names


@asynccontextmanager
async def _serving(root: Path, most: int) -> AsyncIterator[tuple[httpx.AsyncClient, VectorStore]]:
    pod = PodPart(
        pipeline="bench",
        generator=Generator(model=ModelSource(path="/none")),
        embedder=Embedder(model=ModelSource(path="/none"), dimension=64),
        store=SnapshotStore(claim_name="snapshots"),
        uploads=Uploads(pvc=ClaimFolder(claim_name="uploads"), max_files=most),
    )
    content = ContentPart(snapshot=_SNAPSHOT)
    index = stand_in_index([StandInDocument(f"Page {each}", f"Text of page {each}.") for each in range(20)], _SNAPSHOT)
    service, settings = Service(pod), ServerSettings(claims=root)
    engine = StandInEngine()
    backend = Backend(StandInEncoder, StandInTokenizer, lambda _: index, engine, root, uploads=Folder(root))
    started = await start_with(backend, service, content, settings)
    transport = httpx.ASGITransport(create_app(service, settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://bench", timeout=600) as client:
        yield client, service.handlers.store
    await started.close()


def _operations(
    client: httpx.AsyncClient, store: VectorStore, names: list[str]
) -> dict[str, Callable[[int], Awaitable[Any]]]:
    def posted(turn: int) -> Awaitable[httpx.Response]:
        return client.post("/v1/files", files={"file": (f"new-{turn}.txt", b"x"), "purpose": (None, "assistants")})

    return {
        "look, as every 5 s": lambda _: store.refresh(600),
        "upload": posted,
        "add to the store": lambda turn: client.post(f"{_STORE}/files", json={"file_id": names[turn]}),
        "one file of the store": lambda turn: client.get(f"{_STORE}/files/{names[turn]}"),
        "20 files of the store": lambda _: client.get(f"{_STORE}/files"),
        "the store": lambda _: client.get(_STORE),
        "one file": lambda turn: client.get(f"/v1/files/{names[turn]}"),
        "100 files": lambda _: client.get("/v1/files?limit=100"),
        "all files": lambda _: client.get("/v1/files"),
        "search": lambda _: client.post(f"{_STORE}/search", json={"query": "page"}),
        "take out of the store": lambda turn: client.delete(f"{_STORE}/files/{names[turn]}"),
        "delete": lambda turn: client.delete(f"/v1/files/{names[-1 - turn]}"),
    }


async def _measured(operation: Callable[[int], Awaitable[Any]], rounds: int) -> list[float]:
    times = []
    for turn in range(rounds):
        began = time.perf_counter()
        answered = await operation(turn)
        times.append(1000 * (time.perf_counter() - began))
        if isinstance(answered, httpx.Response):
            answered.raise_for_status()
    return times


async def _run(root: Path, files: int, rounds: int) -> None:
    names = _fill(root, files)
    began = time.perf_counter()
    async with _serving(root, files + rounds) as (client, store):
        took = time.perf_counter() - began
        await asyncio.sleep(2 * _STEP_SECONDS)
        await store.refresh(600)
        print(f"{files} files, start {took:.2f} s\n")
        print("| operation | median ms | slowest ms |\n|---|---|---|")
        for name, operation in _operations(client, store, names).items():
            times = await _measured(operation, rounds)
            print(f"| {name:22} | {median(times):9.1f} | {max(times):9.1f} |", flush=True)


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; a temporary one without it")
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        asyncio.run(_run(Path(folder), asked.files, asked.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
