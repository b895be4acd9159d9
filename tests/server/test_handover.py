"""Questions that a pod of the stable side passes on to a candidate of the same pipeline, over real connections."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import openai
import pytest
from handing import PATH, PIPELINE, Side, handover_to, side, token
from joserfc.jwk import OKPKey
from rag_server import body, content_part

from tailhold_api.access import Limits
from tailhold_api.handover import Candidate, Handover, handover_audience
from tailhold_api.serving import Prompt
from tailhold_api.slo import Objective, ObjectiveMetric, Objectives
from tailhold_server.access.caller import Caller
from tailhold_server.access.limits import Ticket
from tailhold_server.errors import Failure, ServeError
from tailhold_server.testing import StandInEngine
from tailhold_server.tracing import TraceContext, Traced

NEW = content_part(prompt=Prompt(system="Answer briefly."))
"""Another revision of the same pod part."""


@dataclass
class Two:
    """Both sides of a rollout."""

    stable: Side
    candidate: Side

    async def hand(self, weight: float = 100, **more: Any) -> None:
        """The share that goes to the candidate."""
        more = {"revision": self.candidate.revision} | more
        await self.stable.hand_to(self.candidate.handover_port, weight=weight, **more)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with side(tmp_path) as stable, side(tmp_path, content=NEW) as candidate:
        assert stable.revision != candidate.revision
        yield Two(stable, candidate)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_the_clients_answer_is_the_candidates(two: Two, streamed: bool) -> None:
    await two.hand()
    answer = await two.stable.client.post(PATH, json=body(stream=streamed, stream_options=_usage(streamed)))
    direct = await two.candidate.client.post(PATH, json=body(stream=streamed, stream_options=_usage(streamed)))
    assert answer.headers["x-tailhold-revision"] == two.candidate.revision
    assert {name for name in answer.headers if "handover" in name} == set()
    assert _shape(answer) == _shape(direct)
    assert set(direct.headers) - {"content-length"} <= set(answer.headers)
    assert len(two.candidate.engine.prompts) == 3, "the warm-up's and these two"
    assert await two.stable.handed() == {"answered": 1}


def _usage(streamed: bool) -> Any:
    return {"include_usage": True} if streamed else None


def _shape(answer: httpx.Response) -> list[Any]:
    """What it says, without ids and times."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        texts = [answer.text]
    else:
        texts = [line[6:] for line in answer.text.split("\n\n") if line]
    assert all(texts)
    found = [json.loads(each) if each.startswith("{") else each for each in texts]
    for each in found:
        if isinstance(each, dict):
            assert each.pop("id").startswith("chatcmpl-")
            each.pop("created")
            each.get("tailhold", {}).pop("stages", None)
    return found


@pytest.mark.parametrize("weight", [0, 1, 33.3, 50, 90, 100])
async def test_a_pooled_client_sees_just_the_weights_share(two: Two, weight: float) -> None:
    """C33, C34: any weight with one pod a side, on one connection."""
    await two.hand(weight)
    seen: Counter[str] = Counter()
    for asked in range(1, 61):
        answer = await two.stable.client.post(PATH, json=body(max_tokens=1))
        seen[answer.headers["x-tailhold-revision"]] += 1
        assert abs(seen[two.candidate.revision] - asked * weight / 100) < 1


async def test_requests_are_counted_once_under_the_revision_that_answered(two: Two) -> None:
    await two.hand(50)
    for streamed in (False, True) * 5:
        assert (await two.stable.client.post(PATH, json=body(stream=streamed))).status_code == 200
    for objective in ("EndToEnd-60000ms", "TimeToFirstToken-60000ms"):
        assert await two.stable.counted(two.stable.revision, objective) == (5, 5)
        assert await two.stable.counted(two.candidate.revision, objective) == (5, 5)
        assert await two.candidate.counted(two.candidate.revision, objective) == (0, 0), "that would be twice"
    requests = await two.stable.metrics("tailhold_requests_total")
    assert requests["ok",] == 10, "counted where clients come in"
    assert (await two.candidate.metrics("tailhold_requests_total"))["ok",] == 0
    await two.candidate.client.post(PATH, json=body())
    assert await two.candidate.counted(two.candidate.revision) == (1, 1), "its own clients' are its own"


async def test_counters_are_there_with_zero_before_the_first_request(two: Two) -> None:
    """C45."""
    await two.hand(1)
    text = (await two.stable.running.internal.get("/metrics")).text
    for revision in (two.stable.revision, two.candidate.revision):
        labels = f'{{le="+Inf",objective="EndToEnd-60000ms",revision="{revision}"}}'
        assert f"tailhold_objective_seconds_bucket{labels} 0.0" in text
    assert 'tailhold_handover_requests_total{outcome="timed_out"} 0.0' in text
    assert "tailhold_handover_requests_in_flight 0.0" in text


async def test_times_are_what_the_client_sees_on_both_ways(tmp_path: Path) -> None:
    """Six words of 50 ms each: first token, gap and end, streamed or not."""
    objectives = Objectives(
        objectives=tuple(
            Objective(metric=metric, threshold_milliseconds=threshold)
            for metric, threshold in (
                (ObjectiveMetric.TIME_TO_FIRST_TOKEN, 200),
                (ObjectiveMetric.INTER_TOKEN, 200),
                (ObjectiveMetric.RETRIEVAL, 200),
                (ObjectiveMetric.END_TO_END, 280),
            )
        )
    )
    engine = StandInEngine(seconds_per_token=0.05, answer="one two three four five six")
    async with side(tmp_path) as stable, side(tmp_path, content=NEW, engine=engine) as candidate:
        stable.running.service.objectives.keep(objectives.objectives)
        await stable.hand_to(candidate.handover_port, revision=candidate.revision)
        for streamed in (False, True):
            await stable.client.post(PATH, json=body(stream=streamed))
        tallies = stable.running.service.objectives._tallies[candidate.revision]
    within = {name: sum(tally.counts[:-6]) for name, tally in tallies.items()}
    assert within == {
        "TimeToFirstToken-200ms": 2,
        "InterToken-200ms": 2,
        "Retrieval-200ms": 2,
        "EndToEnd-280ms": 0,
    }
    assert all(sum(tally.counts) == 2 for tally in tallies.values())
    assert 0.3 <= tallies["EndToEnd-280ms"].total_seconds / 2 < 1
    assert tallies["TimeToFirstToken-200ms"].total_seconds / 2 >= 0.05
    assert tallies["InterToken-200ms"].total_seconds / 2 >= 0.05


async def test_new_content_in_a_running_pod_counts_under_its_new_name(two: Two) -> None:
    stable = two.stable
    before = stable.revision
    await stable.client.post(PATH, json=body())
    service = stable.running.service
    service.put_content(await asyncio.to_thread(service.contents.load, content_part(prompt=Prompt(system="Now."))))
    await stable.client.post(PATH, json=body())
    assert before != stable.revision
    assert await stable.counted(before) == await stable.counted(stable.revision) == (1, 1)


async def test_what_was_handed_over_is_not_handed_over_again(two: Two) -> None:
    """Two pods that each take the other for the candidate."""
    await two.hand()
    await two.candidate.hand_to(two.stable.handover_port, revision=two.stable.revision)
    answer = await two.stable.client.post(PATH, json=body())
    assert answer.headers["x-tailhold-revision"] == two.candidate.revision
    assert await two.candidate.handed() == {}


async def test_a_pod_that_runs_on_another_revision_answers_nothing_and_nothing_is_counted(two: Two) -> None:
    """A candidate that restarted with the content it was made with."""
    await two.hand(revision="0" * 10 + "-" + "1" * 10)
    answer = await two.stable.client.post(PATH, json=body())
    assert answer.headers["x-tailhold-revision"] == two.stable.revision
    assert await two.stable.handed() == {"misdirected": 1}
    assert await two.stable.counted("0" * 10 + "-" + "1" * 10) == (0, 0)


async def test_the_operator_sees_what_is_in_force(two: Two) -> None:
    assert (await two.stable.running.internal.get("/v1/tuning")).json()["handover"] is None
    await two.hand(12.5)
    told = (await two.stable.running.internal.get("/v1/tuning")).json()["handover"]
    assert (told["weightPercent"], told["revision"]) == (12.5, two.candidate.revision)
    assert [each["pod"] for each in told["candidates"]] == ["candidate-0"]
    assert 0 < told["expiresInSeconds"] <= 10
    assert "token" not in told
    await two.hand(0)
    assert (await two.stable.running.internal.get("/v1/tuning")).json()["handover"] is None


async def test_a_share_for_several_candidates_goes_to_all(tmp_path: Path) -> None:
    async with side(tmp_path) as stable, side(tmp_path, content=NEW) as one, side(tmp_path, content=NEW) as two:
        await stable.hand_to(one.handover_port, two.handover_port, revision=one.revision)
        await asyncio.gather(*(stable.client.post(PATH, json=body()) for _ in range(20)))
        assert len(one.engine.prompts) == len(two.engine.prompts) == 11


class TestAccess:
    async def test_only_the_operator_says_what_is_handed_over(self, two: Two) -> None:
        told = Handover(
            weight_percent=100,
            revision=two.candidate.revision,
            candidates=(Candidate(pod="a", ip="127.0.0.1", port=two.candidate.handover_port),),
        )
        strangers = (token(key=OKPKey.generate_key("Ed25519")), token("team/other"), token(handover_audience(PIPELINE)))
        for key in (*strangers, "nonsense"):
            assert (await two.stable.tell(told, key)).status_code == 401
        assert two.stable.running.service.handovers.in_force is None
        assert (await two.stable.client.put("/internal/handover", json={})).status_code == 404

    @pytest.mark.parametrize(
        "proof",
        [
            {},
            {"x-tailhold-handover": "nonsense"},
            {"x-tailhold-handover": token(PIPELINE)},
            {"x-tailhold-handover": token(handover_audience("team/other"))},
            {"x-tailhold-handover": token(handover_audience(PIPELINE), OKPKey.generate_key("Ed25519"))},
            {"x-tailhold-handover": token(handover_audience(PIPELINE), seconds=-60)},
            {"x-tailhold-handover": token(handover_audience(PIPELINE), seconds=3600)},
        ],
        ids=["none", "nonsense", "for content", "another pipeline's", "another's key", "too old", "for too long"],
    )
    async def test_nobody_else_gets_in_where_pods_hand_over(self, two: Two, proof: dict[str, str]) -> None:
        more = {
            "x-tailhold-handover-request": "chatcmpl-" + "0" * 32,
            "x-tailhold-handover-revision": two.candidate.revision,
        }
        url = f"http://127.0.0.1:{two.candidate.handover_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            answer = await client.post(PATH, json=body(), headers=proof | more)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "handover_refused"
        assert len(two.candidate.engine.prompts) == 1, "the warm-up's"

    async def test_where_pods_hand_over_there_are_questions_and_nothing_else(self, two: Two) -> None:
        proof = {
            "x-tailhold-handover": token(handover_audience(PIPELINE)),
            "x-tailhold-handover-request": "chatcmpl-" + "0" * 32,
            "x-tailhold-handover-revision": two.candidate.revision,
        }
        url = f"http://127.0.0.1:{two.candidate.handover_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, headers=proof) as client:
            assert (await client.post(PATH, json=body())).status_code == 200
            for path in ("/v1/models", "/v1/embeddings", "/metrics", "/internal/content", "/v1/tuning"):
                assert (await client.get(path)).status_code == 404
            wrong = {"x-tailhold-handover-request": "chatcmpl-1"}
            assert (await client.post(PATH, json=body(), headers=wrong)).status_code == 400

    async def test_a_client_gains_nothing_by_the_header(self, tmp_path: Path) -> None:
        """Not even with a token that is right: it is held to its limits, and counted."""
        limited = content_part().model_copy(update={"limits": Limits(requests_per_minute=1)})
        async with side(tmp_path, content=limited) as stable:
            forged = {
                "x-tailhold-handover": token(handover_audience(PIPELINE)),
                "x-tailhold-handover-request": "chatcmpl-" + "0" * 32,
                "x-tailhold-handover-revision": stable.revision,
            }
            answers = [await stable.client.post(PATH, json=body(), headers=forged) for _ in range(2)]
            assert [each.status_code for each in answers] == [200, 429]
            assert answers[0].json()["id"] != forged["x-tailhold-handover-request"]
            assert "x-tailhold-handover-told" not in answers[0].headers
            assert await stable.counted(stable.revision) == (1, 1)

    async def test_a_pod_without_the_operators_key_takes_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "other").mkdir()
        async with side(tmp_path) as stable, side(tmp_path / "other", content=NEW) as candidate:
            (tmp_path / "other" / "operator.pub.json").unlink()
            await stable.hand_to(candidate.handover_port, revision=candidate.revision)
            answer = await stable.client.post(PATH, json=body())
            assert answer.headers["x-tailhold-revision"] == stable.revision
            assert await stable.handed() == {"misdirected": 1}


class Keys:
    """Lets in who says `key-NAME`."""

    def __init__(self, *known: str) -> None:
        self._known = known

    async def caller(self, given: str) -> Caller:
        name = given.removeprefix("key-")
        if name not in self._known:
            raise ServeError(Failure.UNAUTHENTICATED, "none of ours", code="invalid_api_key")
        return Caller(name, "tenant")


async def test_the_candidate_checks_the_client_too(tmp_path: Path) -> None:
    async with (
        side(tmp_path, authenticator=Keys("ada", "bob")) as stable,
        side(tmp_path, content=NEW, authenticator=Keys("ada")) as candidate,
    ):
        await stable.hand_to(candidate.handover_port, revision=candidate.revision)
        seen = {}
        for name in ("ada", "bob", "eve"):
            answer = await stable.client.post(PATH, json=body(), headers={"authorization": f"Bearer key-{name}"})
            seen[name] = (answer.status_code, answer.headers.get("x-tailhold-revision"))
        assert seen == {"ada": (200, candidate.revision), "bob": (200, stable.revision), "eve": (401, None)}
        assert await stable.handed() == {"answered": 1, "refused": 1}
        assert await stable.counted(candidate.revision) == (1, 2)


async def test_limits_hold_once_and_are_settled_by_what_the_candidate_used(tmp_path: Path) -> None:
    limits = Limits(requests_per_minute=100, tokens_per_minute=100_000, max_concurrent=2)
    limited = content_part().model_copy(update={"limits": limits})
    async with side(tmp_path, content=limited) as stable, side(tmp_path, content=NEW) as candidate:
        direct = await candidate.client.post(PATH, json=body(max_tokens=500))
        used = direct.json()["usage"]["total_tokens"]
        await stable.hand_to(candidate.handover_port, revision=candidate.revision)
        settled: list[tuple[int, int]] = []
        limiter = stable.running.service.meter._limiter
        settle = limiter.settle

        def settle_seen(ticket: Ticket, tokens: int, now: float) -> None:
            settled.append((ticket.charged, tokens))
            settle(ticket, tokens, now)

        limiter.settle = settle_seen  # type: ignore[method-assign]
        for streamed in (False, True):
            answer = await stable.client.post(PATH, json=body(max_tokens=500, stream=streamed))
            assert answer.headers["x-tailhold-revision"] == candidate.revision
            assert "x-ratelimit-remaining-tokens" in answer.headers
        account = stable.running.service.meter._limiter._accounts["anonymous"]
        assert 1 < account.requests <= 2
        assert account.running == 0
        assert [(charged > 500, spent) for charged, spent in settled] == [(True, used)] * 2


async def test_who_is_beyond_its_limit_is_turned_away_by_the_stable_pod(tmp_path: Path) -> None:
    limited = content_part().model_copy(update={"limits": Limits(tokens_per_minute=50)})
    async with side(tmp_path, content=limited) as stable, side(tmp_path, content=NEW) as candidate:
        await stable.hand_to(candidate.handover_port, revision=candidate.revision)
        for streamed in (False, True):
            answer = await stable.client.post(PATH, json=body(stream=streamed))
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert await stable.counted(candidate.revision) == (0, 0)
        assert stable.running.service.held == candidate.running.service.held == 0


class Tracer:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.came: list[dict[str, str]] = []
        self.ended: list[Traced] = []

    def begin(self, headers: Any) -> TraceContext:
        self.came.append(dict(headers))
        parent = headers.get("traceparent", "").split("-")
        trace = int(parent[1], 16) if len(parent) == 4 else 7
        caller = int(parent[2], 16) if len(parent) == 4 else None
        return TraceContext(trace, 100 + len(self.came), caller, True, {"vendor": "x"})

    def end(self, traced: Traced) -> None:
        self.ended.append(traced)

    def close(self) -> None: ...


async def test_request_and_trace_go_on_at_the_candidate(two: Two) -> None:
    stable, candidate = Tracer(), Tracer()
    two.stable.running.service.tracer, two.candidate.running.service.tracer = stable, candidate
    await two.hand()
    parent = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01", "x-request-id": "mine"}
    answer = await two.stable.client.post(PATH, json=body(), headers=parent)
    assert answer.headers["x-tailhold-trace"] == "1" * 32
    (came,) = candidate.came
    assert came["traceparent"] == "00-" + "1" * 32 + f"-{101:016x}-01", "the stable pod's span is the parent"
    assert came["tracestate"] == "vendor=x"
    assert came["x-request-id"] == "mine"
    assert not [name for name in came if "handover" in name], "nobody beyond the door sees the proof"
    (ours,), (theirs,) = stable.ended, candidate.ended
    assert ours.asked.request_id == theirs.asked.request_id == answer.json()["id"]
    assert (ours.outcome, ours.revision, ours.facts["tailhold.handover"]) == ("ok", two.candidate.revision, "answered")
    assert theirs.pieces


async def test_the_candidate_records_its_answer_and_the_stable_pod_does_not(
    two: Two, chained: Any, tmp_path: Path
) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "c").mkdir()
    stable, candidate = chained(tmp_path / "s"), chained(tmp_path / "c")
    two.stable.running.service.auditor, two.candidate.running.service.auditor = stable, candidate
    await two.hand()
    answer = await two.stable.client.post(PATH, json=body(stream=True))
    assert answer.status_code == 200
    await stable.close()
    await candidate.close()
    assert not [line for line in _records(tmp_path / "s") if line["kind"] in ("begun", "ended")]
    begun, ended = [line for line in _records(tmp_path / "c") if line["kind"] in ("begun", "ended")]
    assert (begun["revision"], ended["outcome"]) == (two.candidate.revision, "ok")
    assert begun["request"] == json.loads(answer.text.partition("\n")[0][6:])["id"]


def _records(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.rglob("*")) if path.is_file() for line in path.read_bytes().splitlines()]
    found = [json.loads(line) for line in lines if line.startswith(b"{")]
    return [each.get("record", each) for each in found if isinstance(each, dict) and "kind" in each.get("record", each)]


async def test_a_candidate_whose_engine_dies_before_the_first_token_is_not_seen(two: Two) -> None:
    two.candidate.engine.freeze()
    await two.hand()
    for streamed in (True, False):
        asked = asyncio.ensure_future(two.stable.client.post(PATH, json=body(stream=streamed)))
        while not two.candidate.running.service.held:  # noqa: ASYNC110  a number, no event
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.05)
        two.candidate.engine.kill()
        answer = await asked
        assert answer.headers["x-tailhold-revision"] == two.stable.revision
        assert "error" not in answer.text
        two.candidate.engine._alive = True
        two.candidate.engine._died.clear()
        two.candidate.engine.freeze()
    assert await two.stable.handed() == {"failed": 2}
    assert await two.stable.counted(two.candidate.revision) == (0, 2)


async def test_a_client_that_leaves_frees_the_candidates_engine(two: Two) -> None:
    """C59."""
    two.candidate.engine.seconds_per_token = 0.05
    two.candidate.engine.answer = "word " * 400
    await two.hand()
    async with two.stable.client.stream("POST", PATH, json=body(stream=True)) as answer:
        await anext(answer.aiter_raw())
    left = time.monotonic()
    while two.candidate.running.service.held or two.stable.running.service.held:
        assert time.monotonic() < left + 1
        await asyncio.sleep(0.01)
    assert two.candidate.engine.aborted
    assert await two.stable.handed() == {"given_up": 1}


async def test_an_unmodified_client_streams_from_the_candidate(two: Two) -> None:
    await two.hand()
    client = openai.AsyncOpenAI(api_key="k", base_url=f"http://127.0.0.1:{two.stable.port}/v1", max_retries=0)
    stream = await client.chat.completions.create(
        model="docs",
        messages=[{"role": "user", "content": "When?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices).startswith("You asked")
    assert chunks[-1].usage is not None
    await client.close()


async def test_a_slow_reader_holds_the_candidate_back_and_gets_every_byte(two: Two) -> None:
    """An answer beyond all buffers: neither pod keeps it in memory."""
    two.candidate.engine.answer = "x" * 20_000_000 + " end"
    await two.hand()
    async with two.stable.client.stream("POST", PATH, json=body(stream=True, max_tokens=5)) as answer:
        pieces, size = answer.aiter_raw(), 0
        async for piece in pieces:
            size += len(piece)
            if size < 1_000_000:
                await asyncio.sleep(0.01)
                assert two.stable.running.service.held == 1
    assert size > 20_000_000
    assert piece.endswith(b"[DONE]\n\n")
    assert await two.stable.handed() == {"answered": 1}


async def test_a_large_question_is_handed_over_as_it_came(two: Two) -> None:
    await two.hand()
    turns = [("user", "x" * 2_000_000), ("assistant", "Yes."), ("user", "When does it close?")]
    messages = [{"role": role, "content": content} for role, content in turns]
    answer = await two.stable.client.post(PATH, json=body(messages=messages))
    assert answer.json()["choices"][0]["message"]["content"].startswith("You asked: When does it close?")
    assert answer.headers["x-tailhold-revision"] == two.candidate.revision
    assert await two.stable.handed() == {"answered": 1}


async def test_of_two_thousand_at_once_none_is_lost_while_the_weight_changes(tmp_path: Path) -> None:
    async with (
        side(tmp_path, engine=StandInEngine(running_limit=4000)) as stable,
        side(tmp_path, content=NEW, engine=StandInEngine(running_limit=4000)) as candidate,
    ):
        for each in (stable, candidate):
            each.running.service._pipeline._gate._running_limit = 4000  # type: ignore[union-attr]
        service, told = stable.running.service, 0

        def tell() -> None:
            """As often as the event loop goes round, at most each 10 ms."""
            nonlocal told, timer
            weight = (10, 50, 0, 100, 33.3)[told % 5]
            service.hand_over(handover_to(candidate.handover_port, weight=weight, revision=candidate.revision))
            told += 1
            timer = asyncio.get_running_loop().call_later(0.01, tell)

        timer = asyncio.get_running_loop().call_soon(tell)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def ask(at: int) -> tuple[int, str, str]:
                asked = body(f"Question {at}?", stream=bool(at % 2))
                async with client.post(f"http://127.0.0.1:{stable.port}{PATH}", json=asked) as answer:
                    return answer.status, answer.headers.get("x-tailhold-revision", ""), await answer.text()

            answers = await asyncio.gather(*map(ask, range(2000)))
        timer.cancel()
        assert {status for status, _, _ in answers} == {200}
        for at, (_, _, text) in enumerate(answers):
            assert f"Question {at}?" in text if at % 2 == 0 else text.endswith("[DONE]\n\n")
        revisions = Counter(revision for _, revision, _ in answers)
        assert set(revisions) == {stable.revision, candidate.revision}
        assert await stable.handed() == {"answered": revisions[candidate.revision]}
        assert await stable.counted(candidate.revision) == (revisions[candidate.revision],) * 2
        assert await stable.counted(stable.revision) == (revisions[stable.revision],) * 2
        assert stable.running.service.held == candidate.running.service.held == 0
        assert told > 3
