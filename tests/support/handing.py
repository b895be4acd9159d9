"""A stable server and a candidate, each on a port of loopback, with the operator's key between them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from joserfc import jwt
from joserfc.jwk import OKPKey
from prometheus_client.parser import text_string_to_metric_families
from rag_server import Running, running

from tailhold_api import names
from tailhold_api.codec import dump
from tailhold_api.handover import Candidate, Handover, handover_audience
from tailhold_api.parts import ContentPart
from tailhold_api.slo import Objective, ObjectiveMetric, Objectives
from tailhold_server.access.authentication import Authenticator
from tailhold_server.app import create_app, create_handover_app
from tailhold_server.protocol import Protocol
from tailhold_server.settings import ServerSettings
from tailhold_server.testing import StandInEngine

PIPELINE = "team/docs"
KEY = OKPKey.generate_key("Ed25519")
CANDIDATE = "c" * 10 + "-" + "d" * 10
"""The revision of stand-ins of a candidate."""
WHOLE, FIRST = "EndToEnd-60000ms", "TimeToFirstToken-60000ms"
OBJECTIVES = Objectives(
    objectives=(
        Objective(metric=ObjectiveMetric.END_TO_END, threshold_milliseconds=60000),
        Objective(metric=ObjectiveMetric.TIME_TO_FIRST_TOKEN, threshold_milliseconds=60000),
    )
)


def token(audience: str = PIPELINE, key: OKPKey = KEY, seconds: int = 60) -> str:
    """As the operator signs them."""
    said = {"aud": audience, "exp": int(time.time()) + seconds}
    return jwt.encode({"alg": "Ed25519"}, said, key, algorithms=["Ed25519"])


def settings(folder: Path, **more: Any) -> ServerSettings:
    """A server of the pipeline, which knows the operator's key."""
    path = folder / "operator.pub.json"
    path.write_text(json.dumps(KEY.as_dict(private=False)))
    return ServerSettings(public_key=path, pipeline=PIPELINE, **more)


@asynccontextmanager
async def listening(app: Any, **options: Any) -> AsyncIterator[int]:
    """An application on a free port of loopback."""
    config = uvicorn.Config(app, port=0, http=Protocol, log_config=None, access_log=False, lifespan="off", **options)
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  it tells nobody
        await asyncio.sleep(0.002)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


@dataclass
class Side:
    """A pod of the pipeline that runs, with its ports."""

    running: Running
    port: int
    handover_port: int
    client: httpx.AsyncClient
    """Of its clients, over a real connection."""

    @property
    def revision(self) -> str:
        """Its revision's name."""
        return self.running.service.revision

    @property
    def engine(self) -> StandInEngine:
        """What answers."""
        return self.running.engine

    async def metrics(self, name: str) -> dict[tuple[str, ...], float]:
        """Samples of a name by the values of their labels."""
        text = (await self.running.internal.get("/metrics")).text
        families = text_string_to_metric_families(text)
        samples = [each for family in families for each in family.samples if each.name == name]
        return {tuple(sample.labels.values()): sample.value for sample in samples}

    async def handed(self) -> dict[str, int]:
        """What became of requests that were to be handed over."""
        found = await self.metrics(names.METRIC_HANDOVER_REQUESTS)
        return {labels[0]: int(value) for labels, value in found.items() if value}

    async def counted(self, revision: str, objective: str = WHOLE) -> tuple[int, int]:
        """Good requests and all of a revision."""
        text = (await self.running.internal.get("/metrics")).text
        found = {
            sample.labels["le"]: int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"{names.METRIC_OBJECTIVE_SECONDS}_bucket"
            and (sample.labels["objective"], sample.labels["revision"]) == (objective, revision)
        }
        return found.get("60.0", 0), found.get("+Inf", 0)

    async def tell(self, handover: Handover, key: str | None = None) -> httpx.Response:
        """As the operator does."""
        headers = {"authorization": f"Bearer {key or token()}"}
        return await self.running.internal.put("/internal/handover", content=dump(handover), headers=headers)

    async def hand_to(
        self, *ports: int, weight: float = 100, revision: str = CANDIDATE, patience: int = 30000, name: str = ""
    ) -> None:
        """Hand over to what listens on these ports of loopback."""
        candidates = tuple(
            Candidate(pod=f"candidate-{at}", ip="127.0.0.1", port=port, server_name=name)
            for at, port in enumerate(ports)
        )
        told = Handover(
            weight_percent=weight,
            revision=revision,
            candidates=candidates,
            patience_milliseconds=patience,
            token=token(handover_audience(PIPELINE)),
        )
        answer = await self.tell(told)
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def side(
    folder: Path,
    content: ContentPart | None = None,
    authenticator: Authenticator | None = None,
    engine: StandInEngine | None = None,
    objectives: Objectives = OBJECTIVES,
    tls: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Side]:
    """A pod on ports of its own, which counts objectives; `more` are its settings."""
    own = settings(folder, **more)
    async with running(content=content, settings=own, authenticator=authenticator, engine=engine) as server:
        server.service.objectives.keep(objectives.objectives)
        server.service.objectives.know(server.service.revision)
        app = create_app(server.service, own, authenticator)
        receiving = create_handover_app(app, server.service, own)
        async with (
            listening(app) as port,
            listening(receiving, **(tls or {})) as handover_port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client,
        ):
            yield Side(server, port, handover_port, client)
        await server.service.handovers.carrier.close()


Behaviour = Callable[["Conversation"], Any]


@dataclass
class Conversation:
    """A connection to a stand-in of a candidate."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes
    body: bytes

    async def say(self, *parts: bytes) -> None:
        """Send, each part by itself."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def closed(self) -> None:
        """Returns when the other side has left."""
        while await self.reader.read(1024):
            pass


@dataclass
class Stage:
    """A stand-in of a candidate that does what a test says, byte by byte."""

    port: int = 0
    heard: list[Conversation] = field(default_factory=list)


@asynccontextmanager
async def acting(act: Behaviour, **options: Any) -> AsyncIterator[Stage]:
    """Each request is answered by `act`, and its connection closed."""
    stage = Stage()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            sizes = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            conversation = Conversation(reader, writer, head, await reader.readexactly(int(sizes[0])))
            stage.heard.append(conversation)
            await act(conversation)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0, **options)
    stage.port = server.sockets[0].getsockname()[1]
    try:
        yield stage
    finally:
        server.close()
