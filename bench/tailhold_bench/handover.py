"""What a handover adds to a request: `python -m tailhold_bench.handover`.

Three ways to one candidate with a stand-in engine that speaks a word every 5 ms, 16 words an answer: asked directly;
through a relay of bytes, the floor of any pod in between; and handed over by a pod of the stable side. Each is a
process of its own. The ways take turns in blocks of requests, so that what else the machine does meets all of them.
`cpu` is the time that the process in front (the candidate, the relay, the stable pod) computes for a request.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import aiohttp
import numpy as np
import uvicorn
import uvloop
from joserfc import jwt
from joserfc.jwk import OKPKey
from numpy.typing import NDArray

from tailhold_api.codec import digest
from tailhold_api.handover import Candidate, Handover, handover_audience
from tailhold_api.parts import ContentPart, PodPart, revision_name
from tailhold_api.serving import Embedder, Generator, Prompt
from tailhold_api.sources import ModelSource, SnapshotStore
from tailhold_server.app import create_app, create_handover_app
from tailhold_server.backends import Backend
from tailhold_server.protocol import Protocol
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings
from tailhold_server.start import start_with
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInEngine, StandInTokenizer, stand_in_index

_PIPELINE = "team/docs"
_PATH = "/v1/chat/completions"
_WORDS = 16
_SECONDS_PER_WORD = 0.005
_BLOCK = 32
_SAMPLES = {1: 256, 4: 768, 8: 1024}
"""By how many ask at the same time."""
_SNAPSHOT = "a" * 64
_DOCUMENTS = (StandInDocument("Hours", "The office closes at 18:00."), StandInDocument("Badges", "Renewed in May."))


@dataclass(frozen=True)
class Ports:
    """On loopback."""

    candidate: int
    handover: int
    stable: int
    relay: int


class Way(NamedTuple):
    """To an answer."""

    port: int
    process: int

    def cpu_milliseconds(self) -> float:
        """That the process in front has computed for."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Row(NamedTuple):
    """One way's latencies in milliseconds."""

    first: NDArray[np.float64]
    """Until the first token; empty for answers that are not streamed."""
    whole: NDArray[np.float64]
    cpu: float


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key.json"
        key.write_text(json.dumps(OKPKey.generate_key("Ed25519").as_dict(private=True)))
        ports = Ports(*_free_ports(4))
        roles = ((_candidate, (ports, key)), (_stable, (ports, key)), (_relay, (ports,)))
        with _processes(roles) as (candidate, stable, relay):
            ways = {
                "directly": Way(ports.candidate, candidate),
                "through a relay": Way(ports.relay, relay),
                "handed over": Way(ports.stable, stable),
            }
            uvloop.run(_measure(ways))
    return 0


@contextmanager
def _processes(roles: "tuple[tuple[Callable[..., None], tuple[object, ...]], ...]") -> Iterator[list[int]]:
    spawn = multiprocessing.get_context("spawn")
    started = [spawn.Process(target=role, args=given, daemon=True) for role, given in roles]
    for each in started:
        each.start()
    try:
        yield [each.pid or 0 for each in started]
    finally:
        for each in started:
            each.terminate()
            each.join()


def _candidate(ports: Ports, key: Path) -> None:
    uvloop.run(_serve(key, "Cite.", ports.candidate, ports.handover, None))


def _stable(ports: Ports, key: Path) -> None:
    uvloop.run(_serve(key, "Be brief.", ports.stable, None, ports.handover))


def _relay(ports: Ports) -> None:
    uvloop.run(_relayed(ports.relay, ports.candidate))


async def _serve(key: Path, system: str, port: int, handover_port: int | None, hands_to: int | None) -> None:
    settings = ServerSettings(public_key=key, pipeline=_PIPELINE, calibration_seconds=0)
    service = Service(_pod())
    engine = StandInEngine(seconds_per_token=_SECONDS_PER_WORD, answer="word " * _WORDS, running_limit=256)
    index = stand_in_index(_DOCUMENTS, _SNAPSHOT)
    backend = Backend(lambda: StandInEncoder(), StandInTokenizer, lambda _: index, engine, Path("/nonexistent"), None)
    await start_with(backend, service, _content(system), settings)
    app = create_app(service, settings)
    serving: list[Awaitable[None]] = [_listen(app, port)]
    if handover_port is not None:
        serving.append(_listen(create_handover_app(app, service, settings), handover_port))
    if hands_to is not None:
        serving.append(_hand_over(service, _read(key), hands_to))
    await asyncio.gather(*serving)


async def _hand_over(service: Service, private: OKPKey, port: int) -> None:
    """As the operator does, over and over."""
    revision = revision_name(service.pod_digest, digest(_content("Cite.")))
    while True:
        claims = {"aud": handover_audience(_PIPELINE), "exp": int(time.time()) + 60}
        token = jwt.encode({"alg": "Ed25519"}, claims, private, algorithms=["Ed25519"])
        candidates = (Candidate(pod="candidate", ip="127.0.0.1", port=port),)
        service.hand_over(Handover(weight_percent=100, revision=revision, candidates=candidates, token=token))
        await asyncio.sleep(3)


def _read(key: Path) -> OKPKey:
    return OKPKey.import_key(json.loads(key.read_text()))


def _content(system: str) -> ContentPart:
    return ContentPart(snapshot=_SNAPSHOT, prompt=Prompt(system=system))


def _pod() -> PodPart:
    none = ModelSource(path="/models/none")
    store = SnapshotStore(claim_name="snapshots")
    embedder = Embedder(model=none, dimension=64)
    return PodPart(pipeline="docs", generator=Generator(model=none), embedder=embedder, store=store)


async def _listen(app: object, port: int) -> None:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        port=port,
        http=Protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
    )
    await uvicorn.Server(config).serve()


async def _relayed(port: int, to: int) -> None:
    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other, onward = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(_pumped(reader, onward), _pumped(other, writer))

    server = await asyncio.start_server(met, "127.0.0.1", port)
    await server.serve_forever()


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def _measure(ways: dict[str, Way]) -> None:
    _print_head()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        for way in ways.values():
            await _until_ready(client, way.port)
        await _check(client, ways)
        for streamed, at_once in product((True, False), _SAMPLES):
            rows = await _cell(client, ways, streamed, at_once)
            _print_cell(rows, streamed, at_once)


async def _check(client: aiohttp.ClientSession, ways: dict[str, Way]) -> None:
    """That the stable pod hands over: a bench that measures its own answers would show nothing."""
    revisions = set()
    for way in ways.values():
        async with client.post(f"http://127.0.0.1:{way.port}{_PATH}", json=_body(False)) as answer:
            revisions.add(answer.headers["x-tailhold-revision"])
    if len(revisions) != 1:
        raise SystemExit(f"nothing is handed over: {revisions}")


async def _until_ready(client: aiohttp.ClientSession, port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            await _ask(client, port, False)
        except aiohttp.ClientError:
            await asyncio.sleep(0.2)
        else:
            return
    raise SystemExit(f"nobody answers on port {port}")


async def _cell(client: aiohttp.ClientSession, ways: dict[str, Way], streamed: bool, at_once: int) -> dict[str, Row]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    cpu = dict.fromkeys(ways, 0.0)
    for _ in range(_SAMPLES[at_once] // _BLOCK):
        for name, way in ways.items():
            before = way.cpu_milliseconds()
            found[name] += await _block(client, way.port, streamed, at_once)
            cpu[name] += way.cpu_milliseconds() - before
    return {name: _row(taken, cpu[name]) for name, taken in found.items()}


def _row(taken: list[tuple[float, float]], cpu: float) -> Row:
    first, whole = (1000 * np.array(column) for column in zip(*taken, strict=True))
    return Row(first, whole, cpu / len(taken))


async def _block(client: aiohttp.ClientSession, port: int, streamed: bool, at_once: int) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    left = iter(range(_BLOCK))

    async def asker() -> None:
        found.extend([await _ask(client, port, streamed) for _ in left])

    await asyncio.gather(*(asker() for _ in range(at_once)))
    return found


async def _ask(client: aiohttp.ClientSession, port: int, streamed: bool) -> tuple[float, float]:
    """Seconds until the first token, and until the end."""
    began, first, seen = time.perf_counter(), 0.0, 0
    async with client.post(f"http://127.0.0.1:{port}{_PATH}", json=_body(streamed)) as answer:
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}: {await answer.text()}")
        async for piece in answer.content.iter_any():
            seen += piece.count(b"data: ")
            if seen > 1 and not first:
                first = time.perf_counter() - began
    return first, time.perf_counter() - began


def _body(streamed: bool) -> dict[str, object]:
    return {"model": "docs", "messages": [{"role": "user", "content": "When does it close?"}], "stream": streamed}


def _print_head() -> None:
    print(f"{_WORDS} words, one every {1000 * _SECONDS_PER_WORD:g} ms; milliseconds, and times of asking directly")
    print(f"{os.cpu_count()} cores, four processes, aiohttp {aiohttp.__version__}, uvicorn {uvicorn.__version__}")
    print(
        f"{'answer':9}{'at once':>8}{'n':>6}  {'way':17}{'first p50':>10}{'p99':>8}{'x p50':>7}{'x p99':>7}"
        f"{'whole p50':>11}{'p99':>8}{'x p50':>7}{'x p99':>7}{'cpu':>7}"
    )


def _print_cell(rows: dict[str, Row], streamed: bool, at_once: int) -> None:
    base = rows["directly"]
    for way, row in rows.items():
        first = _figures(row.first, base.first) if streamed else " " * 32
        kind = "streamed" if streamed else "whole"
        print(
            f"{kind:9}{at_once:8}{len(row.whole):6}  {way:17}{first} {_figures(row.whole, base.whole)}{row.cpu:7.2f}",
            flush=True,
        )


def _figures(taken: NDArray[np.float64], base: NDArray[np.float64]) -> str:
    (p50, p99), (b50, b99) = (np.percentile(each, [50, 99]) for each in (taken, base))
    return f"{p50:10.2f}{p99:8.2f}{p50 / b50:7.3f}{p99 / b99:7.3f}"


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for each in probes:
        each.bind(("127.0.0.1", 0))
    found = [int(each.getsockname()[1]) for each in probes]
    for each in probes:
        each.close()
    return found


if __name__ == "__main__":
    sys.exit(main())
