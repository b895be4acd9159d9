"""Runs a schedule in processes of its own and gathers what they measure."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Limits
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Schedule
from tailhold_bench.load.target import TargetSettings
from tailhold_bench.load.worker import READY, Assignment, WorkerEnd, work

_READY_SECONDS = 60.0
_START_SECONDS = 0.2
"""For processes that are ready to be told."""
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
    counts: Counter[Outcome] = field(default_factory=Counter)
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
    workers = [_started(Assignment(schedule.share(place, processes), target, limits)) for place in range(processes)]
    pipes = [pipe for _, pipe in workers]
    try:
        run = _begun(pipes)
        _gather_or_stop(pipes, run, on_progress)
    finally:
        for process, pipe in workers:
            pipe.close()
            process.join(5)
            process.kill()
    run.samples.sort(key=lambda sample: sample.number)
    return run


def _begun(pipes: Sequence[Connection]) -> Run:
    """All start together, once each has loaded what it needs: a late one would show as lag."""
    for pipe in pipes:
        if not pipe.poll(_READY_SECONDS) or _said(pipe) != READY:
            raise LoadError(f"a process of the generator was not ready within {_READY_SECONDS:.0f} s")
    run = Run(time.monotonic() + _START_SECONDS, time.time() + _START_SECONDS)
    for pipe in pipes:
        pipe.send(run.start)
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
    said = _said(pipe)
    if isinstance(said, WorkerEnd):
        run.cpu_shares.append(said.cpu_share)
        left.remove(pipe)
    else:
        run.samples += said
        run.counts.update(sample.outcome for sample in said)


def _said(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionResetError):
        raise LoadError("a process of the generator ended before its time; see its message above") from None
