"""Whether the server is alive and ready, from what is known of its start and its engine."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum

from tailhold_server.ports import Delta, EngineProgress


class Phase(StrEnum):
    """How far the server is; the first five are steps of its start, in this order."""

    RESOLVE = "resolve"
    LOAD_ENCODER = "loadEncoder"
    LOAD_SNAPSHOT = "loadSnapshot"
    START_ENGINE = "startEngine"
    WARM_UP = "warmUp"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


STARTED = (Phase.SERVING, Phase.DRAINING)


@dataclass(frozen=True)
class Verdict:
    """A probe's answer."""

    ok: bool
    reason: str


class StallClock:
    """What an engine gave and who waits for it: time in which an answer waits for its reader is not the engine's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting = 0
        self._tokens = 0
        self._last_token_at = clock()

    async def watched(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """The same deltas; closing this closes them."""
        async with aclosing(deltas):
            while (delta := await self._next(deltas)) is not None:
                yield delta

    def progress(self) -> EngineProgress:
        """Of the tokens that were handed over."""
        return EngineProgress(self._waiting, self._tokens, self._last_token_at)

    async def _next(self, deltas: AsyncGenerator[Delta, None]) -> Delta | None:
        if not self._waiting:
            self._last_token_at = self._clock()
        self._waiting += 1
        try:
            delta = await anext(deltas, None)
        finally:
            self._waiting -= 1
        if delta is not None and delta.token_count:
            self._tokens += delta.token_count
            self._last_token_at = self._clock()
        return delta


def judge_started(phase: Phase) -> Verdict:
    """The start is over; a start that goes on is no failure of liveness."""
    return Verdict(phase in STARTED, phase.value)


def judge_engine(alive: bool, progress: EngineProgress, *, now: float, stall_seconds: float) -> Verdict:
    """One that is waited for and gives no token for `stall_seconds` is as good as dead."""
    if not alive:
        return Verdict(False, "the engine's process has ended")
    still = now - progress.last_token_at
    if progress.running > 0 and still > stall_seconds:
        return Verdict(False, f"{progress.running} requests wait and no token came for {still:.0f} s")
    return Verdict(True, "the engine runs")


def judge_alive(phase: Phase, engine: Verdict) -> Verdict:
    """Before the start is over nothing is asked of the engine."""
    return engine if phase in STARTED else Verdict(phase is not Phase.FAILED, phase.value)


def judge_ready(phase: Phase, engine: Verdict) -> Verdict:
    """A question went through the whole path, the engine moves, and the server is not on its way out."""
    return engine if phase is Phase.SERVING else Verdict(False, phase.value)
