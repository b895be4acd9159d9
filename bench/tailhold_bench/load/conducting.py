"""Runs a schedule in processes of its own and gathers what they measure."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Limits
from tailhold_bench.load.samples import Sample
from tailhold_bench.load.schedule import Schedule
from tailhold_bench.load.target import TargetSettings
from tailhold_bench.load.worker import Assignment, WorkerEnd, work

_START_SECONDS = 1.0
"""For processes to start in; a late one would show as lag."""
_WAKE_SECONDS = 0.25
Progress = Callable[["Run"], None]


@dataclass
class Run:
    """What was measured so far."""

    start: float
    """Of CLOCK_MONOTONIC."""
    began: float
    """Seconds since the epoch."""
    samples: list[Sample] = field(default_factory=list)
    cpu_shares: list[float] = field(default_factory=list)
    """Of each process, in cores."""
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """Since the start."""
        return max(0.0, time.monotonic() - self.start)


def conduct(
    schedule: Schedule, target: TargetSettings, limits: Limits, *, processes: int, on_progress: Progress
) -> Run:
    """Until all is answered or given up. Ctrl-C ends it early; what was measured is kept.

    Raises LoadError when a process dies.
    """
    now = time.monotonic()
    run = Run(now + _START_SECONDS + 0.5 * processes, time.time() + _START_SECONDS + 0.5 * processes)
    shares = [schedule.share(place, processes) for place in range(processes)]
    workers = [_started(Assignment(due, target, limits, run.start)) for due in shares]
    try:
        _gather_or_stop([pipe for _, pipe in workers], run, on_progress)
    finally:
        for process, pipe in workers:
            pipe.close()
            process.join(5)
            process.kill()
    run.samples.sort(key=lambda sample: sample.number)
    return run


def _started(assignment: Assignment) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(assignment, theirs), name="tailhold-load", daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _gather_or_stop(pipes: Sequence[Connection], run: Run, on_progress: Progress) -> None:
    left = list(pipes)
    try:
        _gather(left, run, on_progress)
    except KeyboardInterrupt:
        run.interrupted = True
        for pipe in left:
            with suppress(OSError):
                pipe.send("stop")
        _gather(left, run, on_progress)


def _gather(left: list[Connection], run: Run, on_progress: Progress) -> None:
    while left:
        for pipe in wait(left, _WAKE_SECONDS):
            assert isinstance(pipe, Connection)  # noqa: S101  all that is in `left`
            _take(pipe, left, run)
        on_progress(run)


def _take(pipe: Connection, left: list[Connection], run: Run) -> None:
    try:
        said = pipe.recv()
    except (EOFError, ConnectionResetError):
        raise LoadError("a process of the generator ended before its time; see its message above") from None
    if isinstance(said, WorkerEnd):
        run.cpu_shares.append(said.cpu_share)
        left.remove(pipe)
    else:
        run.samples += said
