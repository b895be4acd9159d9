"""Limits of a client: laws of the buckets, and what clients read."""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_process import Starter
from rag_server import Running, body, content_part, pod_part, running
from secret_folder import swap

from tailhold_api.access import ApiKeys, Auth, Limits
from tailhold_api.parts import ContentPart
from tailhold_api.spec import Program
from tailhold_server.access.limits import Limiter, Refusal, Standing, Ticket, duration, headers
from tailhold_server.testing import StandInEngine

AMOUNTS = st.integers(1, 40)


@dataclass(frozen=True)
class Asked:
    """A question: how long after the one before, what it may need, what it needs, and how long it takes."""

    after: float
    most: int
    share: float
    takes: float


ASKED = st.lists(
    st.builds(Asked, st.floats(0, 30), AMOUNTS, st.floats(0, 1), st.floats(0, 90)), min_size=1, max_size=60
)


def limits(requests: int | None = None, tokens: int | None = None, concurrent: int | None = None) -> Limits:
    return Limits(requests_per_minute=requests, tokens_per_minute=tokens, max_concurrent=concurrent)


@dataclass
class Admitted:
    at: float
    most: int
    used: int
    ends: float


def played(asked: list[Asked], allowed: Limits) -> list[Admitted]:
    """The questions that came through, each settled when it is over, in the order of time."""
    limiter, now, running_, admitted = Limiter(), 0.0, list[tuple[float, Ticket, int]](), list[Admitted]()
    for each in asked:
        now += each.after
        for over in sorted([one for one in running_ if one[0] <= now], key=lambda one: one[0]):
            running_.remove(over)
            limiter.settle(over[1], over[2], over[0])
        ticket = limiter.enter("ada", allowed, now)
        if isinstance(ticket, Refusal):
            continue
        if limiter.charge(ticket, each.most, now):
            limiter.settle(ticket, 0, now)
            continue
        used = int(each.most * each.share)
        running_.append((now + each.takes, ticket, used))
        admitted.append(Admitted(now, each.most, used, now + each.takes))
        if allowed.max_concurrent is not None:
            assert len(running_) <= allowed.max_concurrent
    return admitted


@given(ASKED, st.integers(1, 30))
def test_no_window_holds_more_questions_than_burst_and_rate(asked: list[Asked], per_minute: int) -> None:
    times = [each.at for each in played(asked, limits(requests=per_minute))]
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= per_minute + (times[last] - start) * per_minute / 60 + 1e-3


@given(ASKED, st.integers(1, 100))
def test_no_window_holds_more_tokens_than_burst_and_rate_and_what_was_given_back(
    asked: list[Asked], per_minute: int
) -> None:
    admitted = played(asked, limits(tokens=per_minute))
    for first in range(len(admitted)):
        for last in range(first, len(admitted)):
            start, end = admitted[first].at, admitted[last].at
            taken = sum(each.most for each in admitted[first : last + 1])
            back = sum(each.most - each.used for each in admitted if start <= each.ends <= end)
            assert taken - back <= per_minute + (end - start) * per_minute / 60 + 1e-3


@given(ASKED, st.integers(1, 5))
def test_no_more_run_at_once_than_are_allowed(asked: list[Asked], concurrent: int) -> None:
    played(asked, limits(concurrent=concurrent))


@given(ASKED, st.integers(1, 100))
def test_clients_that_use_less_get_in_no_less_often(asked: list[Asked], per_minute: int) -> None:
    """What was taken too much is given back."""
    at_once = [Asked(each.after, each.most, 0.0, 0.0) for each in asked]
    never = [Asked(each.after, each.most, 1.0, 0.0) for each in asked]
    some, full = (played(each, limits(tokens=per_minute)) for each in (at_once, never))
    assert len(some) >= len(full)
    assert len(some) == sum(each.most <= per_minute for each in asked)


@given(st.integers(1, 1000), st.integers(0, 2000), st.floats(0, 1e6))
def test_who_waits_as_long_as_was_said_is_let_in(per_minute: int, tries: int, start: float) -> None:
    limiter, allowed = Limiter(), limits(requests=per_minute)
    answers = [limiter.enter("ada", allowed, start) for _ in range(min(tries, per_minute) + per_minute + 1)]
    assert sum(isinstance(each, Ticket) for each in answers) == per_minute
    last = answers[-1]
    assert isinstance(last, Refusal)
    assert last.retry_after_seconds is not None
    assert isinstance(limiter.enter("ada", allowed, start + last.retry_after_seconds), Ticket)


def test_one_client_spends_nothing_of_another() -> None:
    limiter, allowed = Limiter(), limits(requests=1, concurrent=1)
    assert isinstance(limiter.enter("ada", allowed, 0), Ticket)
    assert isinstance(limiter.enter("ada", allowed, 0), Refusal)
    assert isinstance(limiter.enter("bob", allowed, 0), Ticket)


def test_new_limits_hold_at_once_for_what_was_spent_before() -> None:
    limiter = Limiter()
    for _ in range(10):
        assert isinstance(limiter.enter("ada", limits(requests=10), 0), Ticket)
    assert isinstance(limiter.enter("ada", limits(requests=5), 0), Refusal)
    assert isinstance(limiter.enter("ada", limits(requests=11), 0), Ticket)
    assert isinstance(limiter.enter("ada", limits(), 0), Ticket)


def test_a_question_is_settled_once() -> None:
    limiter, allowed = Limiter(), limits(tokens=100, concurrent=1)
    ticket = limiter.enter("ada", allowed, 0)
    assert isinstance(ticket, Ticket)
    assert limiter.charge(ticket, 100, 0) is None
    for _ in range(3):
        limiter.settle(ticket, 60, 0)
    assert limiter.standing(ticket, 0) == (None, Standing(100, 40, 36.0))


def test_a_hundred_thousand_clients_take_bounded_memory() -> None:
    limiter, allowed = Limiter(most_clients=1000), limits(requests=5)
    held = limiter.enter("first", allowed, 0)
    for number in range(100_000):
        ticket = limiter.enter(f"client-{number}", allowed, number / 10_000)
        assert isinstance(ticket, Ticket)
        limiter.settle(ticket, 0, number / 10_000)
    assert len(limiter) <= 1001
    assert isinstance(held, Ticket)
    limiter.settle(held, 0, 10)
    for number in range(2000):
        limiter.enter("ada", limits(), 1000 + number)
    assert len(limiter) == 1, "who has all back is forgotten"
    assert sys.getsizeof(limiter._accounts) < 1 << 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0ms"), (0.0201, "21ms"), (1, "1s"), (6.2, "7s"), (59.5, "1m0s"), (60, "1m0s"), (89.5, "1m30s")],
)
def test_times_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_without_limits_nothing_is_said_of_them() -> None:
    assert headers(None, None) == {}


def limited(**fields: Any) -> ContentPart:
    return content_part().model_copy(update={"limits": limits(**fields)})


async def test_a_client_reads_where_it_stands_and_when_to_come_again() -> None:
    async with running(content=limited(requests=2, tokens=10_000)) as server:
        first, second = [await server.ask(max_tokens=5, stream=stream) for stream in (False, True)]
        third = await server.ask()
        denied = server.service.telemetry.text()
    said = [{name: each for name, each in answer.headers.items() if "ratelimit" in name} for answer in (first, second)]
    assert said[0]["x-ratelimit-limit-requests"] == "2"
    assert [each["x-ratelimit-remaining-requests"] for each in said] == ["1", "0"]
    assert said[0]["x-ratelimit-reset-requests"] == "30s"
    assert said[0]["x-ratelimit-limit-tokens"] == "10000"
    assert int(said[0]["x-ratelimit-remaining-tokens"]) < 10_000
    error = third.json()["error"]
    assert (third.status_code, error["code"], error["type"]) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert "2 questions a minute" in error["message"]
    assert 25 <= int(third.headers["retry-after"]) <= 30
    assert 'tailhold_denied_total{reason="limit"} 1.0' in denied


async def test_tokens_are_taken_at_the_longest_and_settled_at_the_end() -> None:
    async with running(content=limited(tokens=100_000)) as server:
        first = await server.ask(max_tokens=1000)
        second = await server.ask(max_tokens=1000)
        usage = first.json()["usage"]
    left = [int(each.headers["x-ratelimit-remaining-tokens"]) for each in (first, second)]
    assert left[0] == 100_000 - usage["prompt_tokens"] - 1000
    assert left[1] == pytest.approx(left[0] - usage["total_tokens"], abs=2000), "within what came back meanwhile"
    assert left[1] > 100_000 - 2 * (usage["prompt_tokens"] + 1000)


async def test_a_question_that_can_never_fit_is_told_so_and_not_tried_again() -> None:
    async with running(content=limited(tokens=50)) as server:
        refused = await server.ask()
        held = server.service.held
    assert refused.status_code == 429
    assert "limit is 50 a minute" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"
    assert held == 0
    assert len(server.engine.prompts) == 1, "the warm-up's alone"


async def test_questions_that_run_give_their_place_back_however_they_end() -> None:
    engine = StandInEngine(seconds_per_token=0.01)
    async with running(content=limited(concurrent=1), engine=engine) as server:
        slow = asyncio.ensure_future(server.ask("word " * 40))
        while not server.service.held:  # noqa: ASYNC110  it tells nobody
            await asyncio.sleep(0)
        refused = await server.ask()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        while server.service.held:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "1 of your questions" in refused.json()["error"]["message"]
        assert (await server.ask()).status_code == 200
        invalid = await server.public.post("/v1/chat/completions", json=body(max_tokens=0))
        assert invalid.status_code == 400
        assert (await server.ask()).status_code == 200


async def changed(server: Running, content: ContentPart) -> None:
    server.service.put_content(server.service.contents.load(content))


async def test_limits_change_without_a_restart() -> None:
    async with running(content=limited(requests=1)) as server:
        assert [(await server.ask()).status_code for _ in range(2)] == [200, 429]
        await changed(server, limited(requests=3))
        assert [(await server.ask()).status_code for _ in range(3)] == [200, 200, 429]
        await changed(server, content_part())
        answer = await server.ask()
    assert answer.status_code == 200
    assert not [name for name in answer.headers if "ratelimit" in name]


def test_openais_client_with_a_key_meets_its_limit_and_is_another_than_its_neighbour(
    start_stand_in: Starter, tmp_path: Any
) -> None:
    keys = {"ada": "ada-0123456789abcdef", "bob": "bob-0123456789abcdef"}
    swap(tmp_path / "secrets" / "clients", **keys)
    pod = pod_part().model_copy(update={"server": Program(auth=Auth(api_keys=ApiKeys(secret_name="clients")))})
    program = start_stand_in(
        pod=pod, content={"limits": limits(requests=2)}, TAILHOLD_SECRETS=str(tmp_path / "secrets")
    )
    ada, bob, eve = (
        openai.OpenAI(base_url=f"{program.url}/v1", api_key=key, max_retries=0)
        for key in (*keys.values(), "eve-0123456789abcdef")
    )
    question: Any = [{"role": "user", "content": "When does the office close?"}]
    for _ in range(2):
        assert ada.chat.completions.create(model="docs", messages=question).choices[0].message.content
    with pytest.raises(openai.RateLimitError) as limited_:
        ada.chat.completions.create(model="docs", messages=question)
    assert limited_.value.code == "rate_limit_exceeded"
    assert [each.id for each in bob.models.list()]
    raw = bob.chat.completions.with_raw_response.create(model="docs", messages=question)
    assert raw.headers["x-ratelimit-remaining-requests"] == "1"
    with pytest.raises(openai.AuthenticationError) as unknown:
        eve.models.list()
    assert unknown.value.code == "invalid_api_key"
