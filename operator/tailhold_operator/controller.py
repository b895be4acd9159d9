"""What runs: the election, the workers and the resync. Events only say that a look is worth it."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from tailhold_api import names
from tailhold_operator.cluster import Cluster
from tailhold_operator.errors import ClusterError, NotLeaderError
from tailhold_operator.kinds import Manifest, Ref, ref_of, uid_of
from tailhold_operator.lease import RETRY_SECONDS, Lease
from tailhold_operator.parsing import generation_of
from tailhold_operator.reconcile import World, reconcile
from tailhold_operator.workqueue import WorkQueue

_log = logging.getLogger(__name__)
_STUCK_SECONDS = 300.0
"""A pass, or a key that waits for one, that is older than this stands still."""

PASSES = Counter(f"{names.FIELD_MANAGER.replace('-', '_')}_reconciles", "Passes over a RagPipeline.", ["outcome"])
SECONDS = Histogram(f"{names.FIELD_MANAGER.replace('-', '_')}_reconcile_duration_seconds", "Time of a pass.")
LEADS = Gauge(f"{names.FIELD_MANAGER.replace('-', '_')}_leader", "1 where this process may write.")
WAITING = Gauge(f"{names.FIELD_MANAGER.replace('-', '_')}_queue_length", "RagPipelines that wait for a pass.")


@dataclass
class Pulse:
    """What shows that work goes on, for the liveness probe."""

    clock: Callable[[], float]
    resynced: float = 0.0
    attempted: float = 0.0
    generations: dict[str, int] = field(default_factory=dict)
    """Newest generation that an event told of, by UID."""
    unheard: dict[str, int] = field(default_factory=dict)
    """Generations that the last resync found and no event had told of."""
    silent: bool = False
    """Whether two resyncs running found an edit that the watch never told of."""


class Controller:
    """One process of the operator."""

    def __init__(
        self,
        world: World,
        plain: Cluster,
        lease: Lease,
        namespaces: tuple[str, ...],
        resync_seconds: float,
        workers: int,
        prepare: Callable[[], Coroutine[Any, Any, None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._plain = plain
        self._lease = lease
        self._namespaces = namespaces
        self._resync_seconds = resync_seconds
        self._workers = workers
        self._prepare = prepare
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._sample: set[Ref] = set()
        self._keys: dict[str, Ref] = {}
        self._leading = False
        self.queue = WorkQueue(clock)
        world.watch.wake = self.queue.add
        self.pulse = Pulse(clock, resynced=clock(), attempted=clock())

    def start(self) -> None:
        """Begin all loops."""
        loops = [self._elect(), self._resync(), *(self._work() for _ in range(self._workers))]
        loops.append(self._world.watch.run(lambda: self._leading and self._lease.may_write))
        self._tasks = [asyncio.create_task(loop) for loop in loops]

    async def stop(self) -> None:
        """End all loops, then give the Lease up: nothing is written after it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lease.release()

    def heard(self, pipeline: Manifest, *, gone: bool) -> None:
        """An event of a RagPipeline: an edit of its spec overtakes what waits."""
        uid, generation = uid_of(pipeline), generation_of(pipeline)
        edited = self.pulse.generations.get(uid) != generation
        if gone:
            self.pulse.generations.pop(uid, None)
            self._keys.pop(uid, None)
        else:
            self.pulse.generations[uid] = generation
            self._keys[uid] = ref_of(pipeline)
        self.queue.add(ref_of(pipeline), urgent=edited and not gone)

    def heard_of_child(self, uid: str) -> None:
        """An event of a child of the pipeline with that UID. Those of the dead go by themselves."""
        key = self._keys.get(uid)
        if key:
            self.queue.add(key)

    def standstill(self) -> str | None:
        """What does not move, if anything does not."""
        now = self._clock()
        if now - self.pulse.attempted > _STUCK_SECONDS:
            return "the election stands still"
        if not self._lease.may_write:
            return None
        if now - self.pulse.resynced > 2 * self._resync_seconds + _STUCK_SECONDS:
            return "no resync"
        if self.queue.oldest_seconds() > _STUCK_SECONDS:
            return "the queue stands still"
        return "the watch tells of no edits" if self.pulse.silent else None

    async def _elect(self) -> None:
        while True:
            won = await self._lease.attempt()
            self.pulse.attempted = self._clock()
            if self._leading and not won:
                _log.warning("no longer leading")
            self._leading = won and (self._leading or await self._begin())
            LEADS.set(self._leading)
            await asyncio.sleep(RETRY_SECONDS)

    async def _begin(self) -> bool:
        """What a new leader does first: its key, then a look at everything. Passes are made from then on."""
        try:
            await self._prepare()
            self._leading = True
            await self._look_at_all(sample=False)
        except ClusterError as error:
            _log.warning("cannot begin to lead", extra={"why": str(error)})
            return False
        _log.info("leading")
        return True

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._resync_seconds * random.uniform(0.9, 1.1))  # noqa: S311
            try:
                await self._look_at_all(sample=True)
            except ClusterError as error:
                _log.warning("no resync", extra={"why": str(error)})

    async def _look_at_all(self, *, sample: bool) -> None:
        found: list[Manifest] = []
        for namespace in self._namespaces or (None,):
            found += await self._plain.pipelines(namespace)
        for pipeline in found:
            self.queue.add(ref_of(pipeline))
            if sample:
                self._sample.add(ref_of(pipeline))
        self._listen(found)
        self.pulse.resynced = self._clock()

    def _listen(self, found: list[Manifest]) -> None:
        """Compare what is there with what the watch told of."""
        there = {uid_of(each): generation_of(each) for each in found}
        told = self.pulse.generations
        unheard = {uid: count for uid, count in there.items() if told.get(uid, -1) < count}
        self.pulse.silent = any(self.pulse.unheard.get(uid) == count for uid, count in unheard.items())
        self.pulse.unheard = unheard

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            WAITING.set(len(self.queue))
            try:
                if self._lease.may_write and self._leading:
                    await self._pass(key)
            finally:
                self.queue.done(key)

    async def _pass(self, key: Ref) -> None:
        sample = key in self._sample
        self._sample.discard(key)
        begun = self._clock()
        try:
            wait = await reconcile(self._world, key, sample=sample)
        except NotLeaderError:
            PASSES.labels("deposed").inc()
            return
        except ClusterError as error:
            PASSES.labels("retried").inc()
            self._again(key, str(error))
            return
        except Exception:  # One pipeline that we stumble over must not stop all others; it is tried again.
            PASSES.labels("failed").inc()
            _log.exception("a pass failed", extra={"object": str(key)})
            self.queue.retry(key)
            return
        PASSES.labels("done").inc()
        SECONDS.observe(self._clock() - begun)
        self.queue.succeeded(key)
        if wait is not None:
            self.queue.add_after(key, wait.total_seconds())

    def _again(self, key: Ref, why: str) -> None:
        seconds = self.queue.retry(key)
        _log.warning("a pass is tried again", extra={"object": str(key), "why": why, "seconds": round(seconds, 1)})
