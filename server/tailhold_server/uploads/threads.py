"""Threads for the volume of uploads alone: where it hangs, they hang with it, and nothing else does.

A thread that waits for a volume cannot be ended. So few are lent, who waits for one is let go after a while, and the
thread counts until the volume answers it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tailhold_server.errors import Failure, ServeError
from tailhold_server.startup import apart

THREADS = 4
MOST_WAITING = 256
SECONDS = 30.0
"""What one operation may take."""
LONG_SECONDS = 300.0
"""The same for one that syncs or reads much: a whole upload, a look that nobody waits for."""
_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")


class VolumeThreads:
    """Event loop only."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.long_seconds = max(seconds, LONG_SECONDS)
        self._slots = asyncio.Semaphore(THREADS)
        self._waiting = 0
        self._due: dict[asyncio.Task[Any], float] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_silent = False

    async def run(self, work: Callable[[], Result], seconds: float | None = None) -> Result:
        """The result of slow work. Raises ServeError where the volume does not answer, at once where no thread of it
        is left that could. Work that was begun goes on when this is cancelled or over.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + (self.seconds if seconds is None else seconds)
        await self._slot(due)
        task = self.kept(apart(work, "uploads"))
        self._due[task] = due
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=due - loop.time())
        if not done:
            raise self._silent()
        return task.result()

    def leave(self, work: Callable[[], object]) -> "asyncio.Task[object]":
        """Work that has to be done however long it takes: in a thread that is not one of the few."""
        return self.kept(apart(work, "uploads-end"))

    def kept(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        """A task that is not lost, whoever leaves it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_seen)
        return task

    async def _slot(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        is_stuck = len(self._due) >= THREADS and all(now > each for each in self._due.values())
        if is_stuck or self._waiting >= MOST_WAITING:
            raise self._silent()
        self._waiting += 1
        try:
            async with asyncio.timeout_at(due):
                await self._slots.acquire()
        except TimeoutError:
            raise self._silent() from None
        finally:
            self._waiting -= 1

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._due[task]
        self._slots.release()
        if self._is_silent:
            self._is_silent = False
            _LOG.warning("the volume of `corpus.uploads` answers again")

    def _silent(self) -> ServeError:
        if not self._is_silent:
            self._is_silent = True
            _LOG.error("the volume of `corpus.uploads` does not answer; questions are answered without it")
        told = "The volume of `corpus.uploads` does not answer. Check `corpus.uploads.pvc` and the storage behind it."
        return ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=30)


def _seen(task: "asyncio.Task[Any]") -> None:
    """Nobody may be there any more who asks how it ended."""
    if not task.cancelled():
        task.exception()
