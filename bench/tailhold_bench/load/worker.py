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

READY = "ready"
_FLUSH_SECONDS = 0.2


@dataclass(frozen=True)
class Assignment:
    """What a worker is given."""

    due: Sequence[Due]
    target: TargetSettings
    limits: Limits


@dataclass(frozen=True)
class WorkerEnd:
    """A worker's last word."""

    cpu_share: float
    """Of one core, while it sent."""


def work(assignment: Assignment, pipe: Connection) -> None:
    """The process's main function: says `READY`, is told when to start, sends samples and at last a WorkerEnd.

    Any later word from outside stops it, and so does the end of the pipe. The start is a time of CLOCK_MONOTONIC, which
    the processes of a machine share.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(50_000)  # a pause of the collector is a lag
    with suppress(EOFError, OSError), asyncio.Runner(loop_factory=punctual_loop) as runner:
        pipe.send(READY)
        start: float = pipe.recv()
        runner.run(_Worker(assignment, pipe, start).run())


class _Worker:
    def __init__(self, assignment: Assignment, pipe: Connection, start: float) -> None:
        self._assignment = assignment
        self._pipe = pipe
        self._start = start
        self._batch: list[Sample] = []
        self._share = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        given = self._assignment
        target = given.target.open()
        generator = Generator(target, given.limits, self._start, self._batch.append)
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
        await asyncio.sleep(max(0.0, self._start - time.monotonic()))
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
