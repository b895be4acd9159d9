"""What a server counts against objectives, as the operator tells it."""

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey
from prometheus_client.parser import text_string_to_metric_families
from rag_server import Running, running

from tailhold_api import names
from tailhold_server.settings import ServerSettings

AUDIENCE = "team/docs"
KEY = OKPKey.generate_key("Ed25519")
LOOSE, TIGHT = "EndToEnd-60000ms", "TimeToFirstToken-1ms"
OBJECTIVES = [
    {"metric": "EndToEnd", "thresholdMilliseconds": 60000, "percent": 99.0},
    {"metric": "TimeToFirstToken", "thresholdMilliseconds": 1, "percent": 99.0},
]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "operator.pub.json"
    path.write_text(json.dumps(KEY.as_dict(private=False)))
    return path


def allowing(key_file: Path) -> ServerSettings:
    """A server of this pipeline."""
    return ServerSettings(public_key=key_file, pipeline=AUDIENCE)


def token() -> str:
    """As the operator signs them."""
    said = {"aud": AUDIENCE, "exp": int(time.time()) + 60}
    return "Bearer " + jwt.encode({"alg": "Ed25519"}, said, KEY, algorithms=["Ed25519"])


async def told(server: Running, objectives: Any = OBJECTIVES, key: str | None = None) -> int:
    body, headers = json.dumps({"objectives": objectives}), {"authorization": key or token()}
    return (await server.internal.put("/internal/objectives", content=body, headers=headers)).status_code


async def counts(server: Running) -> dict[str, dict[str, float]]:
    """Of each objective, requests within each edge."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families((await server.internal.get("/metrics")).text):
        for sample in family.samples:
            if sample.name == f"{names.METRIC_OBJECTIVE_SECONDS}_bucket":
                found.setdefault(sample.labels["objective"], {})[sample.labels["le"]] = sample.value
    return found


async def test_answers_are_counted_with_an_edge_at_the_threshold(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        assert await counts(server) == {}
        assert await told(server) == 200
        for _ in range(3):
            await server.ask()
        found = await counts(server)
        tuning = (await server.internal.get("/v1/tuning")).json()
    assert found[LOOSE]["60.0"] == found[LOOSE]["+Inf"] == 3
    assert found[TIGHT]["+Inf"] == 3
    assert "0.001" in found[TIGHT]
    assert tuning["objectives"] == OBJECTIVES


async def test_what_fails_is_bad_and_what_the_client_got_wrong_is_not_counted(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        await told(server)
        assert (await server.public.post("/v1/chat/completions", json={"messages": []})).status_code == 400
        assert (await counts(server))[LOOSE]["+Inf"] == 0
        server.engine.kill()
        assert (await server.ask()).status_code >= 500
        found = await counts(server)
    assert (found[LOOSE]["60.0"], found[LOOSE]["+Inf"]) == (0, 1)


@pytest.mark.parametrize(
    ("objectives", "key", "status"),
    [
        (OBJECTIVES, "Bearer nonsense", 401),
        ([{"metric": "Throughput", "thresholdMilliseconds": 1}], None, 400),
        ([{"metric": "EndToEnd", "thresholdMilliseconds": 0}], None, 400),
        ("all", None, 400),
    ],
)
async def test_what_is_no_objective_changes_nothing(
    key_file: Path, objectives: Any, key: str | None, status: int
) -> None:
    async with running(settings=allowing(key_file)) as server:
        await told(server)
        assert await told(server, objectives, key) == status
        assert set(await counts(server)) == {LOOSE, TIGHT}


async def test_a_request_has_its_marks_from_its_arrival_on(key_file: Path) -> None:
    """What it did in time is known before it is admitted: a counter that counted it as late could only fall."""
    retrieval = [{"metric": "Retrieval", "thresholdMilliseconds": 200, "percent": 99.0}]
    async with running(settings=allowing(key_file)) as server:
        await told(server, retrieval)
        checked, go_on = threading.Event(), threading.Event()

        def check(sampling: object) -> None:
            checked.set()
            go_on.wait()

        server.engine.check = check  # type: ignore[method-assign]
        asked = asyncio.ensure_future(server.ask(logit_bias={"5": 1}))
        await asyncio.to_thread(checked.wait)
        (case,) = server.service.objectives._open
        found = case.marks and case.marks.found
        go_on.set()
        assert (await asked).status_code == 200
    assert found is not None
