"""How far a fetch is: bytes, and seconds left at the pace so far."""

import time
from collections.abc import Callable
from threading import Lock

from tailhold_api.status import Progress

Tell = Callable[[Progress | None], None]
"""Told how far it is, and None once nothing is fetched any more. Called from several threads, one at a time."""
_EVERY_SECONDS = 0.5
_STEP = 64


class AbandonedError(Exception):
    """Raised by a Tell whose server is being stopped: the fetch ends, and what is there stays."""


def silent(progress: Progress | None) -> None:
    """For whom nobody listens to."""


class Meter:
    """Counts bytes and tells at most twice a second, the first and the last of them always."""

    def __init__(
        self, step: str, total: int, done: int, tell: Tell, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._step, self._total, self._tell, self._clock = step[:_STEP], total, tell, clock
        self._lock = Lock()
        self._done = self._before = done
        self._began = self._told = clock()
        self._say()

    @property
    def done(self) -> int:
        """Bytes that are there."""
        return self._done

    def add(self, count: int) -> None:
        """So many more; fewer where they were wrong and are fetched again."""
        with self._lock:
            self._done += count
            if self._clock() - self._told >= _EVERY_SECONDS or self._done >= self._total:
                self._told = self._clock()
                self._say()

    def _say(self) -> None:
        self._tell(
            Progress(
                step=self._step, done=max(0, self._done), total=self._total, unit="bytes", eta_seconds=self._left()
            )
        )

    def _left(self) -> int | None:
        """What was there before this start says nothing of the pace."""
        passed, fetched = self._clock() - self._began, self._done - self._before
        if fetched <= 0 or passed <= 0:
            return None
        return max(0, round(passed / fetched * (self._total - self._done)))
