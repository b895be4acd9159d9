"""Looks at the engine again and again, and knocks at it when it is silent."""

import asyncio
import logging
import time
from collections.abc import Callable

from tailhold_server.health import Look, Watch, advance
from tailhold_server.observed import ObservedEngine
from tailhold_server.processes import Effort, family, is_stopped

_LOG = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
"""An engine that gave no sign for so long gets a heartbeat: a busy one gives tokens and gets none."""


class Watchman:
    """One for each engine, on the event loop. A heartbeat waits in the engine's queue like anything else, one at most:
    it costs a busy engine nothing, and an idle one a message."""

    def __init__(
        self, engine: ObservedEngine, look_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._look_seconds = look_seconds
        self._clock = clock
        self._effort = Effort()
        self._beats = 0
        self._beat: asyncio.Task[None] | None = None
        self._heard_at = clock()
        self._task: asyncio.Task[None] | None = None
        self.watch = Watch(clock())

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Look no more."""
        tasks = [task for task in (self._task, self._beat) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self) -> None:
        """One look, and a heartbeat where it is due."""
        now = self._clock()
        shown = self._shown(now)
        if (shown.tokens, shown.beats) != (self.watch.tokens, self.watch.beats):
            self._heard_at = now
        self.watch = advance(self.watch, shown, now=now, most_seconds=2 * self._look_seconds)
        if self._beat is None and now - self._heard_at >= BEAT_SECONDS:
            self._beat = asyncio.ensure_future(self._knock())

    def _shown(self, now: float) -> Look:
        engine, before = self._engine, self.watch
        tokens, beats, waiting = engine.tokens, self._beats, engine.waiting
        silent = (waiting or self._beat) and (tokens, beats) == (before.tokens, before.beats)
        pids = family(engine.process_ids())
        return Look(
            tokens,
            beats,
            waiting,
            self._beat is not None,
            at_work=bool(silent) and bool(pids) and self._effort.is_at_work(pids, now),
            stopped=is_stopped(pids),
        )

    async def _knock(self) -> None:
        try:
            await self._engine.heartbeat()
            self._beats += 1
        except Exception as error:  # an engine that is gone is noticed by its process; this is no evidence
            _LOG.debug("no heartbeat: %s", error)
        finally:
            self._beat = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            self.look()
