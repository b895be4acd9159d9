"""What an audit record costs an answer: `python -m tailhold_bench.audit_cost --help`.

Two servers with a stand-in engine that answers at once, one with records on the disk at --folder and one without, are
asked in turn by the same clients in one process, without sockets: what is left is the records' own cost. Times are of a
stream: to its first bytes, which wait for the record of the beginning, and to its end, which waits for both.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tailhold_api.audit import AuditFolder, AuditSink, Recording, Records
from tailhold_api.parts import ContentPart, PodPart
from tailhold_api.serving import Embedder, Generator
from tailhold_api.sources import ModelSource, SnapshotStore
from tailhold_server.app import create_app
from tailhold_server.audit.opening import open_auditor
from tailhold_server.backends import Backend
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.start import start_with
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInEngine, StandInTokenizer, stand_in_index

_ASKED = {"messages": [{"role": "user", "content": "When does the office close?"}], "stream": True}
_SNAPSHOT = "a" * 64


class Times(NamedTuple):
    """Milliseconds of one answer."""

    first: float
    whole: float


@asynccontextmanager
async def _serving(claims: Path, sink: AuditSink | None, records: Records) -> AsyncIterator[Any]:
    """The application that clients use."""
    pod = PodPart(
        pipeline="bench",
        generator=Generator(model=ModelSource(path="/none")),
        embedder=Embedder(model=ModelSource(path="/none"), dimension=64),
        store=SnapshotStore(claim_name="snapshots"),
        audit_sink=sink,
    )
    content = ContentPart(snapshot=_SNAPSHOT, recording=Recording(records=records))
    index = stand_in_index([StandInDocument(f"Page {each}", f"Text of page {each}.") for each in range(20)], _SNAPSHOT)
    service, settings = Service(pod), ServerSettings(claims=claims)
    backend = Backend(StandInEncoder, StandInTokenizer, lambda _: index, StandInEngine(running_limit=256), claims)
    service.auditor = await open_auditor(service, content.recording, settings)
    started = await start_with(backend, service, content, settings)
    yield create_app(service, settings)
    await service.auditor.close()
    await started.close()


async def _ask(app: Any) -> Times:
    body, never = json.dumps(_ASKED).encode(), asyncio.Event()
    parts = iter([{"type": "http.request", "body": body, "more_body": False}])
    began, bodies = time.perf_counter(), list[float]()

    async def receive() -> Any:
        if (part := next(parts, None)) is not None:
            return part
        return await never.wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            bodies.append(time.perf_counter())

    path = "/v1/chat/completions"
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
    }
    scope |= {
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    return Times(1000 * (bodies[0] - began), 1000 * (bodies[-1] - began))


async def _measured(apps: list[Any], clients: int, rounds: int) -> list[list[Times]]:
    """Rounds of `clients` questions at once, first to one server and then to the other."""
    told: list[list[Times]] = [[], []]
    for turn in range(rounds):
        for each in (0, 1) if turn % 2 else (1, 0):
            told[each] += await asyncio.gather(*(_ask(apps[each]) for _ in range(clients)))
    return told


def _row(clients: int, name: str, told: list[Times]) -> str:
    first, whole = (np.array(values) for values in zip(*told, strict=True))
    cells = (f"{np.percentile(each, q):8.2f}" for each in (first, whole) for q in (50, 99))
    return f"| {clients:3} | {name:9} | {' | '.join(cells)} |"


async def _run(folder: Path, clients: list[int], rounds: int, records: Records) -> None:
    sink = AuditSink(pvc=AuditFolder(claim_name="audit"))
    async with _serving(folder, None, records) as off, _serving(folder, sink, records) as on:
        await _measured([off, on], 1, 20)
        print("| at once | records | first p50 ms | first p99 | whole p50 | whole p99 |\n|---|---|---|---|---|---|")
        for count in clients:
            without, with_records = await _measured([off, on], count, max(20, rounds // count))
            print(_row(count, "none", without))
            print(_row(count, records.value, with_records), flush=True)


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; a temporary one without it")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=600, help="answers of each server for each number of clients")
    parser.add_argument("--records", type=Records, choices=list(Records), default=Records.DIGESTS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        asyncio.run(_run(Path(folder), asked.clients, asked.rounds, asked.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
