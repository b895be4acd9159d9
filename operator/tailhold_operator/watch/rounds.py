"""The looks at all pipelines that promise something, each in its own time."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import Counter, Gauge, Histogram

from tailhold_api import names
from tailhold_operator.judge.watched import Watched
from tailhold_operator.keeping import kept
from tailhold_operator.kinds import Ref
from tailhold_operator.watch.memory import Memory, Moment
from tailhold_operator.watch.sources import Source, Told
from tailhold_operator.watch.target import Target

PERIOD_SECONDS = 5.0
WEIGH_SECONDS = 15.0
_TICK_SECONDS = 0.25
_LONGEST_SECONDS = 15.0
"""A look that takes longer is given up; the next one reads what it missed."""
_OURS = names.FIELD_MANAGER.replace("-", "_")

LOOKS = Counter(f"{_OURS}_looks", "Looks at the counters of a RagPipeline's pods.", ["outcome"])
SECONDS = Histogram(f"{_OURS}_look_duration_seconds", "Time of a look.")
WATCHED = Gauge(f"{_OURS}_watched_pipelines", "RagPipelines whose objectives are watched.")
OLDEST = Gauge(f"{_OURS}_unread_seconds", "Age of the oldest counters among all pods that serve: above 30 is blind.")


@dataclass
class _Watching:
    """One pipeline."""

    target: Target
    memory: Memory = field(default_factory=Memory)
    due: float = 0.0
    """Ticks of the next look."""
    running: asyncio.Task[None] | None = None
    weighed: float = 0.0
    """Ticks of when it was last asked whether the promises still fare as was said."""


class Watch:
    """Knows what to look at from the passes: it asks the API server nothing."""

    def __init__(self, source: Source, now: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._source = source
        self._now = now
        self._clock = clock
        self.wake: Callable[[Ref], None] = lambda key: None
        """Called where the promises fare otherwise than the last pass said."""
        self._kept: dict[Ref, _Watching] = {}

    def saw(self, key: Ref, target: Target) -> None:
        """What a pass found. Where nothing is promised there is nothing to watch."""
        if not target.slo.objectives:
            self.forget(key)
            return
        found = self._kept.get(key)
        if found is None:
            first = self._clock() + random.uniform(0, PERIOD_SECONDS)  # noqa: S311 - spreads load, guards nothing
            found = self._kept[key] = _Watching(target, due=first)
        found.target = target
        found.memory.meet(target.pods, self._moment())

    def watched(self, key: Ref) -> Watched:
        """What is known of a pipeline now."""
        found = self._kept.get(key)
        return found.memory.watched(self._moment()) if found else Watched()

    def forget(self, key: Ref) -> None:
        """A pipeline that is gone, or promises nothing any more."""
        found = self._kept.pop(key, None)
        if found and found.running:
            found.running.cancel()

    def forget_all(self) -> None:
        """Another process looks from now on."""
        for key in list(self._kept):
            self.forget(key)

    async def look(self, key: Ref) -> None:
        """One look at one pipeline."""
        found = self._kept.get(key)
        if found is None:
            return
        begun = self._clock()
        told = await self._told(found.target)
        LOOKS.labels("partial" if told.trouble else "whole").inc()
        SECONDS.observe(self._clock() - begun)
        found.memory.take(told.counters, self._moment(), told.trouble)
        self._weigh(key, found)

    async def _told(self, target: Target) -> Told:
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                return await self._source.read(target)
        except TimeoutError:
            return Told({}, f"no look ended within {_LONGEST_SECONDS:.0f} s")

    async def run(self, leads: Callable[[], bool]) -> None:
        """Look for ever, while this process leads."""
        try:
            while True:
                if leads():
                    self._begin_due()
                else:
                    self.forget_all()
                self._count()
                await asyncio.sleep(_TICK_SECONDS)
        finally:
            self.forget_all()

    def _begin_due(self) -> None:
        now = self._clock()
        for key, each in self._kept.items():
            idle = each.running is None or each.running.done()
            if idle and each.due <= now:
                each.due = now + PERIOD_SECONDS * random.uniform(0.9, 1.1)  # noqa: S311 - as above
                each.running = asyncio.create_task(self.look(key))

    def _count(self) -> None:
        """What our own metrics say."""
        WATCHED.set(len(self._kept))
        ages = (each.memory.unread_seconds(self._clock()) for each in self._kept.values())
        OLDEST.set(max(ages, default=0.0))

    def _weigh(self, key: Ref, watching: _Watching) -> None:
        now = self._moment()
        if now.ticks - watching.weighed < WEIGH_SECONDS:
            return
        watching.weighed = now.ticks
        said, watched = watching.target.said, watching.memory.watched(now)
        found = kept(said, watching.target.slo, watched, now.at, sampled=False)
        if found and (said is None or said.answer != found.answer):
            self.wake(key)

    def _moment(self) -> Moment:
        return Moment(self._now(), self._clock())
