"""What the server learns of its engine's speed from the answers that it gives."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest
from rag_server import running

from tailhold_server.calibration import calibrate
from tailhold_server.observed import ObservedEngine
from tailhold_server.ports import Delta, Sampling
from tailhold_server.rates import Meter
from tailhold_server.testing import StandInEngine


def test_a_prompt_alone_shows_how_fast_prompts_are_computed() -> None:
    meter = Meter()
    run = meter.begin(1000, now=10.0)
    meter.gain(run, Delta("a", 1, cached_tokens=200), now=10.5)
    assert meter.rates().prefill == 1600
    assert meter.rates().stream is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_prompts_that_are_computed_beside_each_other_show_nothing(order: tuple[int, int]) -> None:
    meter = Meter()
    runs = [meter.begin(1000, now=10.0), meter.begin(1000, now=10.1)]
    for at in order:
        meter.gain(runs[at], Delta("a", 1), now=11.0 + at)
    assert meter.rates().prefill is None


def test_a_prompt_that_was_mostly_in_the_cache_shows_nothing() -> None:
    meter = Meter()
    meter.gain(meter.begin(1000, now=10.0), Delta("a", 1, cached_tokens=501), now=10.1)
    assert meter.rates().prefill is None


def answered(meter: Meter, *, tokens: int = 21, pace: float = 0.1, away: float = 0.0, finished: bool = True) -> None:
    """An answer of so many tokens, the first after a second."""
    run = meter.begin(100, now=0.0)
    for count in range(tokens):
        reason = "stop" if finished and count == tokens - 1 else None
        meter.gain(run, Delta("a", 1, reason), now=1 + count * pace)
    run.away = away
    meter.end(run, now=1 + tokens * pace)


def test_a_stream_shows_its_pace_and_requests_their_shape() -> None:
    meter = Meter()
    answered(meter)
    shape = meter.shape()
    assert meter.rates().stream == pytest.approx(10)
    assert shape is not None
    assert (shape.prompt_tokens, shape.fresh_tokens, shape.answer_tokens, shape.answers) == (100, 100, 21, 1)
    assert shape.spread == 0


def test_a_reader_that_was_away_or_a_short_answer_shows_no_pace_and_one_given_up_no_shape() -> None:
    meter = Meter()
    answered(meter, away=1.0)
    answered(meter, tokens=5)
    assert meter.rates().stream is None
    gave_up = Meter()
    answered(gave_up, finished=False)
    assert gave_up.shape() is None


def test_a_prompt_that_takes_seconds_is_not_taken_for_slow_streams() -> None:
    """While it is computed in chunks the other stream gains a token with each of them and no more."""
    meter = Meter()
    meter.prefill.add(1000)
    stream = meter.begin(10, now=0.0)
    for step in range(21):
        meter.gain(stream, Delta("a", 1), now=step / 10)
    long = meter.begin(4000, now=2.0)
    for step in range(1, 5):
        meter.gain(stream, Delta("a", 1), now=2.0 + step)
    meter.gain(long, Delta("b", 1), now=6.0)
    assert meter.rates().decode(1) == pytest.approx(10, rel=0.1)


def test_streams_together_show_what_they_gain_beside_the_prompts_that_were_computed() -> None:
    """Four streams of ten tokens a second each; in one of two seconds the engine is half a second at a prompt."""
    meter = Meter()
    meter.prefill.add(1000)
    runs = [meter.begin(10, now=0.0) for _ in range(4)]
    for run in runs:
        meter.gain(run, Delta("", 1), now=0.0)
    for step in range(1, 21):
        for run in runs:
            meter.gain(run, Delta("a", 1), now=step / 10)
    assert meter.rates().decode(4) == pytest.approx(40, rel=0.1)
    busy = Meter()
    busy.prefill.add(1000)
    run = busy.begin(500, now=0.0)
    busy.gain(run, Delta("", 1), now=0.5)
    for step in range(6, 11):
        busy.gain(run, Delta("a", 1), now=step / 10)
    assert busy.rates().decode(1) == pytest.approx(10, rel=0.1)


def test_an_idle_second_is_none_of_the_engines() -> None:
    meter = Meter()
    for begin in (0.0, 100.0):
        run = meter.begin(10, now=begin)
        for step in range(6):
            meter.gain(run, Delta("a", 1), now=begin + step / 10)
        meter.end(run, now=begin + 0.5)
    assert meter.curve == {}


class Paced(StandInEngine):
    """Computes 20,000 prompt tokens a second, then each stream gains a token every five milliseconds."""

    async def _generated(
        self, request_id: str, prompt_ids: list[int], sampling: Sampling
    ) -> AsyncGenerator[Delta, None]:
        self.prompts.append(list(prompt_ids))
        await asyncio.sleep(len(prompt_ids) / 20_000)
        for _ in range(sampling.max_tokens):
            yield Delta("a", 1)
            await asyncio.sleep(0.005)


async def test_a_calibration_finds_the_rates_in_its_time_and_leaves_nothing_behind() -> None:
    engine, meter = Paced(), Meter()
    began = time.monotonic()
    await calibrate(
        engine, meter, list(range(2000)), first_token_seconds=0.1, running=4, seconds=0.5, shares_prefixes=True
    )
    took = time.monotonic() - began
    rates = meter.rates()
    assert rates.prefill is not None
    assert rates.stream is not None
    assert rates.prefill == pytest.approx(20_000, rel=0.5)
    assert rates.decode(4) is not None
    assert 0.4 < took < 1.5
    assert meter.shape() is None, "nobody asked this"
    assert len(engine.prompts) == 5
    assert engine.prompts[0] != list(range(2000))
    assert sorted(engine.prompts[0]) == list(range(2000))


async def test_a_calibration_of_an_engine_that_stands_still_ends() -> None:
    engine, meter = StandInEngine(), Meter()
    await engine.start()
    engine.freeze()
    await calibrate(engine, meter, [1] * 100, first_token_seconds=0.1, running=4, seconds=0.1, shares_prefixes=False)
    assert meter.rates().prefill is None
    assert len(engine.aborted) == 1


async def test_what_is_waited_for_is_counted_and_a_readers_time_is_not() -> None:
    now = 0.0
    seen: list[tuple[int, int]] = []

    class Told(StandInEngine):
        async def _generated(self, *_: object) -> AsyncGenerator[Delta, None]:
            for tokens in (1, 0, 2):
                seen.append((observed.waiting, observed.tokens))
                yield Delta("", tokens)

    observed = ObservedEngine(Told(), Meter(), lambda: now)
    async for _ in observed.generate("r", [1], Sampling(8, 0.0)):
        seen += [(observed.waiting, observed.tokens)]
    assert seen == [(1, 0), (0, 1), (1, 1), (0, 1), (1, 1), (0, 3)]
    assert observed.waiting == 0


async def test_rates_and_capacity_are_told_and_shown() -> None:
    async with running(engine=StandInEngine(seconds_per_token=0.002)) as server:
        before = (await server.internal.get("/v1/tuning")).json()["rates"]
        for number in range(3):
            assert (await server.ask(f"word{number} " * 30)).status_code == 200
        told = (await server.internal.get("/v1/tuning")).json()["rates"]
        text = (await server.internal.get("/metrics")).text
    assert before["requests"]["seen"] == 0
    assert before["capacity"] is None
    assert told["requests"]["seen"] == 3
    assert told["prefillTokensPerSecond"] > 0
    assert told["decodeTokensPerSecondPerStream"] > 0
    assert told["capacity"]["requestsPerSecond"] > 0
    assert told["capacity"]["limitedBy"] in ("engine", "retrieval")
    shown = {line.split()[0]: float(line.split()[1]) for line in text.splitlines() if line.startswith("tailhold_")}
    assert shown["tailhold_prefill_tokens_per_second"] > 0
    assert shown['tailhold_decode_tokens_per_second{streams="one"}'] > 0
    assert shown["tailhold_capacity_requests_per_second"] > 0
