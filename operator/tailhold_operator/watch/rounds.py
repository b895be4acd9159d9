"""The looks at all pipelines that promise something, each in its own time."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tailhold_operator.judge.watched import Watched
from tailhold_operator.kinds import Ref
from tailhold_operator.watch.memory import Memory, Moment
from tailhold_operator.watch.sources import Source
from tailhold_operator.watch.target import Target

PERIOD_SECONDS = 5.0
_TICK_SECONDS = 0.25
_LONGEST_SECONDS = 15.0
"""A look that takes longer is given up; the next one reads what it missed."""


@dataclass
class _Watching:
    """One pipeline."""

    target: Target
    memory: Memory = field(default_factory=Memory)
    due: float = 0.0
    """Ticks of the next look."""
    running: asyncio.Task[None] | None = None


class Watch:
    """Knows what to look at from the passes: it asks the API server nothing."""

    def __init__(self, source: Source, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._source = source
        self._now = now
        self._clock = clock
        self._kept: dict[Ref, _Watching] = {}

    def saw(self, key: Ref, target: Target) -> None:
        """What a pass found. Where nothing is promised there is nothing to watch."""
        if not target.slo.objectives:
            self.forget(key)
            return
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Watching(target, due=self._clock() + random.uniform(0, PERIOD_SECONDS))  # noqa: S311
        kept.target = target
        kept.memory.meet(target.pods, self._moment())

    def watched(self, key: Ref) -> Watched:
        """What is known of a pipeline now."""
        kept = self._kept.get(key)
        return kept.memory.watched(self._moment()) if kept else Watched()

    def forget(self, key: Ref) -> None:
        """A pipeline that is gone, or promises nothing any more."""
        kept = self._kept.pop(key, None)
        if kept and kept.running:
            kept.running.cancel()

    def forget_all(self) -> None:
        """Another process looks from now on."""
        for key in list(self._kept):
            self.forget(key)

    async def look(self, key: Ref) -> None:
        """One look at one pipeline."""
        kept = self._kept.get(key)
        if kept is None:
            return
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                told = await self._source.read(kept.target)
        except TimeoutError:
            kept.memory.take({}, self._moment(), f"no look ended within {_LONGEST_SECONDS:.0f} s")
            return
        kept.memory.take(told.counters, self._moment(), told.trouble)

    async def run(self, leads: Callable[[], bool]) -> None:
        """Look for ever, while this process leads."""
        try:
            while True:
                if leads():
                    self._begin_due()
                else:
                    self.forget_all()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self.forget_all()

    def _begin_due(self) -> None:
        now = self._clock()
        for key, kept in self._kept.items():
            idle = kept.running is None or kept.running.done()
            if idle and kept.due <= now:
                kept.due = now + PERIOD_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 - spreads load, guards nothing
                kept.running = asyncio.create_task(self.look(key))

    def _moment(self) -> Moment:
        return Moment(self._now(), self._clock())
