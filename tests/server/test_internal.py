"""Probes, what is in force, and new content from the operator."""

import asyncio
import base64
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import OKPKey
from operator_key import AUDIENCE, allowing, token, written_key
from rag_server import DOCUMENTS, OTHER_SNAPSHOT, SNAPSHOT, Running, content_part, running

from tailhold_api import names
from tailhold_api.codec import digest, dump
from tailhold_api.serving import Prompt
from tailhold_server.authority import Authority, NotAllowedError
from tailhold_server.content import Index, check_encoder
from tailhold_server.errors import ContentRefusedError
from tailhold_server.settings import ServerSettings
from tailhold_server.testing import StandInDocument, StandInEncoder, StandInEngine, stand_in_index

NEWS = stand_in_index([StandInDocument("News", "The office closes at 20:00.")], OTHER_SNAPSHOT)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return written_key(tmp_path)


def test_a_token_of_the_operators_for_this_pipeline_is_allowed(key_file: Path) -> None:
    authority = Authority(key_file, AUDIENCE)
    assert authority.is_on
    authority.check(token())


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x.y.z",
        "Basic " + token()[7:],
        token(aud="team/other"),
        token(aud=None),
        token(exp=None),
        token(exp=int(time.time()) - 30),
        token(exp=int(time.time()) + 3600),
        token(nbf=int(time.time()) + 3600),
        token(OKPKey.generate_key("Ed25519")),
        "Bearer " + base64.urlsafe_b64encode(b'{"alg":"Ed25519","crit":5}').decode() + ".e30.AA",
        "Bearer " + "eyJhbGciOiJub25lIn0." + token()[7:].split(".")[1] + ".",
    ],
    ids=[
        "none",
        "no token",
        "nonsense",
        "Basic",
        "of another pipeline",
        "of no pipeline",
        "without an end",
        "too old",
        "too long",
        "too early",
        "another's key",
        "a critical header",
        "no signature",
    ],
)
def test_any_other_token_is_not(key_file: Path, authorization: str) -> None:
    with pytest.raises(NotAllowedError):
        Authority(key_file, AUDIENCE).check(authorization)


def test_without_key_or_pipeline_nobody_is_allowed(key_file: Path) -> None:
    assert not Authority(key_file, "").is_on
    assert not Authority(key_file.with_name("none"), AUDIENCE).is_on


async def put(server: Running, part: Any, authorization: str | None = None) -> Any:
    """As the operator hands content over."""
    headers = {"authorization": token() if authorization is None else authorization}
    return await server.internal.put("/internal/content", content=dump(part), headers=headers)


async def test_new_content_serves_new_questions_and_running_ones_end_on_theirs(key_file: Path) -> None:
    engine = StandInEngine()
    new = content_part(OTHER_SNAPSHOT)
    async with running(engine=engine, settings=allowing(key_file), other=NEWS) as server:
        before = server.service.tuning()["revision"]
        engine.freeze()
        asked = asyncio.ensure_future(server.ask())
        while not server.service.held:  # noqa: ASYNC110  a number, no event
            await asyncio.sleep(0.001)
        taken = await put(server, new)
        engine.thaw()
        old, fresh = await asked, await server.ask()
        tuning = (await server.internal.get("/v1/tuning")).json()
        metrics = (await server.internal.get("/metrics")).text
    assert taken.json() == {"contentDigest": digest(new), "snapshot": OTHER_SNAPSHOT}
    assert old.json()["tailhold"]["sources"][0]["text"] == DOCUMENTS[0].text
    assert old.headers["x-tailhold-revision"] == before
    assert [each["title"] for each in fresh.json()["tailhold"]["sources"]] == ["News"]
    assert fresh.headers["x-tailhold-revision"] == tuning["revision"] != before
    assert (tuning["contentDigest"], tuning["snapshot"]) == (digest(new), OTHER_SNAPSHOT)
    assert metrics.count(f"{names.METRIC_INFO}{{") == 1
    assert f'snapshot="{OTHER_SNAPSHOT}"' in metrics


@pytest.mark.parametrize("part", [content_part("c" * 64), content_part(OTHER_SNAPSHOT)])
async def test_refused_content_leaves_the_old_one_serving(key_file: Path, part: Any) -> None:
    unfit = stand_in_index(DOCUMENTS, OTHER_SNAPSHOT, dimension=32)
    async with running(settings=allowing(key_file), other=unfit) as server:
        before = server.service.tuning()
        refused = await put(server, part)
        assert server.service.tuning() == before
        assert (await server.ask()).status_code == 200
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "ContentRefused"


async def test_a_change_of_the_prompt_keeps_the_open_index(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        before = server.service.contents.current
        await put(server, content_part(SNAPSHOT, prompt=Prompt(system="Be brief.")))
        after = server.service.contents.current
        await server.ask()
    assert after.index is before.index
    assert after.digest != before.digest


async def test_a_new_temperature_holds_from_the_next_question_on(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        await server.ask()
        taken = await put(server, content_part(SNAPSHOT, prompt=Prompt(temperature=0.8)))
        await server.ask()
        await server.ask(temperature=0)
    assert taken.status_code == 200
    assert [each.temperature for each in list(server.engine.samplings)[-3:]] == [0.0, 0.8, 0.0]


async def test_content_is_taken_from_nobody_else(key_file: Path) -> None:
    async with running(settings=allowing(key_file)) as server:
        assert (await put(server, content_part(), "Bearer nonsense")).status_code == 401
        sent = {"content": b'{"snapshot":1}', "headers": {"authorization": token()}}
        assert (await server.internal.put("/internal/content", **sent)).status_code == 400  # type: ignore[arg-type]
        assert (await server.public.put("/internal/content")).status_code == 404
        for sent, said in ((b"{}", "snapshot: Field required"), (b"{", "Invalid JSON")):
            refused = await server.internal.put("/internal/content", content=sent, headers={"authorization": token()})
            assert refused.json()["error"]["message"].startswith(said)
    async with running() as closed:
        assert (await put(closed, content_part())).status_code == 403


@pytest.mark.parametrize(
    "path", ["/metrics", "/readyz", "/v1/tuning", "/internal/content", "/invocations", "/tokenize"]
)
async def test_clients_reach_no_internal_route_and_none_of_the_engines(path: str) -> None:
    async with running() as server:
        assert (await server.public.get(path, headers={"host": "localhost:8001"})).status_code == 404


async def test_probes_and_metrics_say_what_the_operator_reads() -> None:
    async with running() as server:
        await server.ask()
        probes = [await server.internal.get(path) for path in ("/startupz", "/readyz", "/livez")]
        metrics = (await server.internal.get("/metrics")).text
    assert [probe.status_code for probe in probes] == [200, 200, 200]
    assert probes[0].json()["phase"] == "serving"
    for name in (names.METRIC_STAGE_SECONDS, names.METRIC_TTFT_SECONDS, names.METRIC_E2E_SECONDS):
        assert f"{name}_count" in metrics
    assert f'{names.METRIC_REQUESTS}{{outcome="ok"}} 1.0' in metrics
    assert f"{names.METRIC_INFO}{{" in metrics


async def test_a_frozen_engine_is_not_alive_once_it_held_a_question_too_long() -> None:
    engine = StandInEngine()
    async with running(engine=engine, settings=ServerSettings(stall_seconds=0.05, look_seconds=0.01)) as server:
        engine.freeze()
        asked = asyncio.ensure_future(server.ask())
        while (await server.internal.get("/livez")).status_code == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert (await server.internal.get("/readyz")).status_code == 503
        engine.thaw()
        assert (await asked).status_code == 200
        while (await server.internal.get("/readyz")).status_code == 503:  # noqa: ASYNC110  until the next look
            await asyncio.sleep(0.005)


def test_an_index_of_another_embedder_is_refused() -> None:
    index = Index(SNAPSHOT, NEWS.chunks, NEWS.searcher, NEWS.metric, 64, "f" * 64)
    with pytest.raises(ContentRefusedError, match="rebuild"):
        check_encoder(index, StandInEncoder(64, fingerprint="e" * 64))


async def test_a_second_question_while_the_engine_is_held_is_looked_up_off_the_loop() -> None:
    """C68: embedding is no work of the event loop; probes answer while it goes on."""
    import threading

    class Slow(StandInEncoder):
        def encode(self, texts: Any) -> Any:
            inside.set()
            assert go_on.wait(10)
            return super().encode(texts)

    inside, go_on = threading.Event(), threading.Event()
    go_on.set()
    async with running(encoder=Slow()) as server:
        inside.clear()
        go_on.clear()
        asked = asyncio.ensure_future(server.ask())
        await asyncio.to_thread(inside.wait, 10)
        assert (await server.internal.get("/readyz")).status_code == 200
        go_on.set()
        assert (await asked).status_code == 200
