"""Some seconds in which the engine is measured before anybody uses it."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from tailhold_server.errors import EngineDiedError
from tailhold_server.ports import Delta, Engine, Sampling
from tailhold_server.rates import Meter

_LOG = logging.getLogger(__name__)
_PREFILL_SHARE = 0.4
"""Of the time for one prompt; the rest is for decoding, half of it alone and half beside others."""
_LEAST_TOKENS = 32
_MOST_STREAMS = 64
"""More of them change the sum little, and on a slow machine their prompts take all the time."""


async def calibrate(
    engine: Engine,
    meter: Meter,
    prompt_ids: Sequence[int],
    *,
    first_token_seconds: float,
    running: int,
    seconds: float,
    shares_prefixes: bool,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Measure one prompt, one stream, and as many streams as may run; in `seconds`, with what came by then.

    `prompt_ids` are a real prompt, whose first token took `first_token_seconds`: no longer one is given than is
    computed in time, and in another order, so that none of it is in the cache. The streams share it, and with it
    its place in the cache.
    """
    pace = len(prompt_ids) / max(first_token_seconds, 1e-6)
    length = int(min(len(prompt_ids), max(_LEAST_TOKENS, pace * seconds * _PREFILL_SHARE)))
    prompt = _shuffled(prompt_ids)[:length]
    try:
        async with asyncio.timeout(2 * seconds):
            began = clock()
            await _run(engine, meter, [prompt], until=began + seconds * (0.5 + _PREFILL_SHARE / 2), clock=clock)
            shared = prompt if shares_prefixes else prompt[:_LEAST_TOKENS]
            together = [shared] * min(running, _MOST_STREAMS)
            await _run(engine, meter, together, until=began + seconds, clock=clock)
    except (TimeoutError, EngineDiedError) as error:
        _LOG.warning("the engine's rates were not measured to the end: %r", error)


async def _run(
    engine: Engine, meter: Meter, prompts: Sequence[list[int]], *, until: float, clock: Callable[[], float]
) -> None:
    """Each prompt a stream, to be measured from when all speak until that time or the end of one."""
    started = clock()
    streams = [_Stream(engine, f"calibration-{len(prompts)}-{at}", ids) for at, ids in enumerate(prompts)]
    tasks = [asyncio.ensure_future(stream.run()) for stream in streams]
    try:
        await asyncio.gather(*(stream.speaks.wait() for stream in streams))
        if len(streams) == 1 and not streams[0].cached:
            meter.prefill.add(len(prompts[0]) / (clock() - started))
        await _measure(meter, streams, until, clock)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _measure(meter: Meter, streams: "Sequence[_Stream]", until: float, clock: Callable[[], float]) -> None:
    """At least until each has gained three tokens, so that something is known of a slow engine too."""
    began = at = clock()
    before, area = sum(stream.tokens for stream in streams), 0.0
    gained, live = 0, len(streams)
    while live and (at < until or gained < 3 * len(streams)):
        await asyncio.sleep(0.005)
        area += live * (clock() - at)
        at = clock()
        gained = sum(stream.tokens for stream in streams) - before
        live = sum(not stream.ended for stream in streams)
    if gained and at > began and round(area / (at - began)):
        meter.measured(round(area / (at - began)), gained / (at - began))


class _Stream:
    """One answer that nobody reads."""

    def __init__(self, engine: Engine, request_id: str, prompt: list[int]) -> None:
        self._deltas: AsyncGenerator[Delta, None] = engine.generate(
            request_id, prompt, Sampling(max_tokens=256, temperature=1.0)
        )
        self.tokens = 0
        self.cached = 0
        self.speaks = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        """To its end, or until it is cancelled, which aborts it."""
        try:
            async with aclosing(self._deltas):
                async for delta in self._deltas:
                    self.tokens += delta.token_count
                    self.cached = max(self.cached, delta.cached_tokens)
                    self.speaks.set()
        finally:
            self.ended = True
            self.speaks.set()


def _shuffled(ids: Sequence[int]) -> list[int]:
    """Another prompt of the same words: what the model makes of it does not matter."""
    return random.sample(list(ids), len(ids))
