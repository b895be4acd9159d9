"""The engine as the pipeline uses it: who waits for it and what it gives is counted on the way."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from tailhold_server.ports import Delta, Engine, Sampling
from tailhold_server.rates import Meter


class ObservedEngine:
    """Another engine, observed: time in which an answer waits for its reader is not the engine's."""

    def __init__(self, engine: Engine, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self.engine = engine
        self.meter = meter
        self.waiting = 0
        """Requests whose answer waits for the engine."""
        self.tokens = 0
        """Handed over since the start."""
        self._clock = clock

    async def start(self) -> None:
        """Returns when it can generate."""
        await self.engine.start()

    def check(self, sampling: Sampling) -> None:
        """Raises ValueError for what the engine would refuse."""
        self.engine.check(sampling)

    def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, *, salt: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """The same deltas; closing this closes them."""
        return self._observed(len(prompt_ids), self.engine.generate(request_id, prompt_ids, sampling, salt=salt))

    async def _observed(self, prompt_tokens: int, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        run = self.meter.begin(prompt_tokens, self._clock())
        try:
            async with aclosing(deltas):
                while (delta := await self._next(deltas)) is not None:
                    given = self._clock()
                    self.meter.gain(run, delta, given)
                    yield delta
                    run.away += self._clock() - given
        finally:
            self.meter.end(run, self._clock())

    async def _next(self, deltas: AsyncGenerator[Delta, None]) -> Delta | None:
        self.waiting += 1
        try:
            delta = await anext(deltas, None)
        finally:
            self.waiting -= 1
        self.tokens += delta.token_count if delta else 0
        return delta

    async def abort(self, request_id: str) -> None:
        """Ends a request."""
        await self.engine.abort(request_id)

    async def heartbeat(self) -> None:
        """Returns when the engine has answered."""
        await self.engine.heartbeat()

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self.engine.is_alive()

    def process_ids(self) -> list[int]:
        """Its processes."""
        return self.engine.process_ids()

    def metrics_text(self) -> str:
        """Its own metrics."""
        return self.engine.metrics_text()

    def description(self) -> dict[str, object]:
        """What it really runs with."""
        return self.engine.description()

    async def stop(self) -> None:
        """Ends its process."""
        await self.engine.stop()
