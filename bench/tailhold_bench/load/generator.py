"""Sends what is due when it is due, whatever is still under way: the open loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Due
from tailhold_bench.load.target import Target

OnSample = Callable[[Sample], None]


@dataclass(frozen=True)
class Limits:
    """What bounds a run."""

    timeout_seconds: float = 60.0
    """From the time a request is due."""
    most_in_flight: int = 4096


class Generator:
    """One run over one target. Times are seconds from `start`, a time of the running loop's clock."""

    def __init__(self, target: Target, limits: Limits, start: float, on_sample: OnSample) -> None:
        self._target = target
        self._limits = limits
        self._start = start
        self._on_sample = on_sample
        self._loop = asyncio.get_running_loop()
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, due: Sequence[Due]) -> None:
        """Begin each request when it is due."""
        for each in due:
            wait = self._start + each.at - self._loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            self._begin(each)

    async def drain(self) -> None:
        """Until each request is answered or given up."""
        while self._under_way:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """Give up what is under way; it stays unfinished."""
        for task in self._under_way:
            task.cancel()
        await self.drain()

    def _clock(self) -> float:
        return self._loop.time() - self._start

    def _begin(self, due: Due) -> None:
        sample = Sample(due.number, due.at, due.asked.max_tokens)
        if len(self._under_way) >= self._limits.most_in_flight:
            sample.fail(Outcome.UNSENT, f"{len(self._under_way)} requests were under way")
            self._on_sample(sample)
            return
        task = self._loop.create_task(self._ask(due, sample))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, due: Due, sample: Sample) -> None:
        try:
            async with asyncio.timeout_at(self._start + due.at + self._limits.timeout_seconds):
                await self._target.ask(due.asked, sample, self._clock)
        except TimeoutError:
            sample.fail(Outcome.TIMEOUT, f"no answer within {self._limits.timeout_seconds:g} s")
        except asyncio.CancelledError:
            sample.fail(Outcome.UNFINISHED, "the run was stopped")
        except Exception as error:
            sample.fail(Outcome.ERROR, f"the generator failed: {error!r}")
        finally:
            sample.ended = self._clock() if sample.ended is None else sample.ended
            self._on_sample(sample)
