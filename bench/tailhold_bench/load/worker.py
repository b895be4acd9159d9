"""One process that generates load: nothing else runs in it, so that its clock is not disturbed."""

import asyncio
import gc
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from tailhold_bench.load.generator import Generator, Limits
from tailhold_bench.load.samples import Sample
from tailhold_bench.load.schedule import Due
from tailhold_bench.load.target import TargetSettings
from tailhold_bench.load.waiting import punctual_loop

_FLUSH_SECONDS = 0.2


@dataclass(frozen=True)
class Assignment:
    """What a worker is given."""

    due: Sequence[Due]
    target: TargetSettings
    limits: Limits
    start: float
    """Of CLOCK_MONOTONIC, which the processes of a machine share."""


@dataclass(frozen=True)
class WorkerEnd:
    """A worker's last word."""

    cpu_share: float
    """Of one core, while it sent."""


def work(assignment: Assignment, pipe: Connection) -> None:
    """The process's main function: sends lists of samples and at last a WorkerEnd; any word from outside stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=punctual_loop) as runner:
        runner.run(_Worker(assignment, pipe).run())


class _Worker:
    def __init__(self, assignment: Assignment, pipe: Connection) -> None:
        self._assignment = assignment
        self._pipe = pipe
        self._batch: list[Sample] = []
        self._share = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        given = self._assignment
        target = given.target.open()
        generator = Generator(target, given.limits, given.start, self._batch.append)
        gc.freeze()
        gc.set_threshold(50_000)  # a pause of the collector is a lag
        sending = loop.create_task(self._send(generator))
        flushing = loop.create_task(self._flush())
        loop.add_reader(self._pipe.fileno(), sending.cancel)
        with suppress(asyncio.CancelledError):
            await sending
        loop.remove_reader(self._pipe.fileno())
        await generator.stop()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await target.close()
        self._pipe.send(self._batch)
        self._pipe.send(WorkerEnd(self._share))

    async def _send(self, generator: Generator) -> None:
        await asyncio.sleep(max(0.0, self._assignment.start - time.monotonic()))
        began, used = time.monotonic(), time.process_time()
        try:
            await generator.send(self._assignment.due)
        finally:
            passed = max(1e-3, time.monotonic() - began)
            self._share = (time.process_time() - used) / passed
        await generator.drain()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            if self._batch:
                batch = list(self._batch)
                self._batch.clear()
                await asyncio.shield(asyncio.to_thread(self._pipe.send, batch))
