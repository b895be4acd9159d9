"""Questions that arrive together, worked on together by one thread that owns encoder and index."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from tailhold_api.serving import Batching

Item = TypeVar("Item")
Result = TypeVar("Result")
Other = TypeVar("Other")

_Outcome = tuple[asyncio.Future[Any], Any, Exception | None]
"""A future and what it gets: a result of its own kind, or an error."""
PATIENCE_SECONDS = 1.0
"""Work that lets questions go first is done after so long all the same."""


def wait_seconds(batching: Batching, *, was_idle: bool, queued: int, waited_seconds: float) -> float:
    """How long the oldest question still waits for others: not on an idle server, not for a full batch."""
    if was_idle or queued >= batching.max_batch:
        return 0.0
    return max(0.0, batching.max_wait_milliseconds / 1000 - waited_seconds)


@dataclass
class _Waiting(Generic[Item, Result]):
    item: Item
    future: asyncio.Future[Result]
    since: float = field(default_factory=time.monotonic)


@dataclass
class _Patient:
    run: Callable[[], None]
    since: float = field(default_factory=time.monotonic)


class Batcher(Generic[Item, Result]):
    """Runs `work` on batches in a thread of its own. `work` gives one result for each item, in order."""

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]], batching: Callable[[], Batching]) -> None:
        self._work = work
        self._batching = batching
        self._queue: deque[_Waiting[Item, Result]] = deque()
        self._patient: deque[_Patient] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread; from the event loop that will submit."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="retrieval", daemon=True)
        self._thread.start()

    async def submit(self, item: Item) -> Result:
        """The item's result. Cancelled, the item is left out of the batch, or its result is dropped."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._queue.append(_Waiting(item, future))
            self._changed.notify()
        return await future

    async def when_idle(self, work: Callable[[], Other]) -> Other:
        """The result of `work`, done by the thread when no item waits, or after a second: it has to be short.

        Cancelled, it is not begun.
        """
        future: asyncio.Future[Other] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._patient.append(_Patient(partial(self._patiently, work, future)))
            self._changed.notify()
        return await future

    async def close(self) -> None:
        """Ends the thread after the batch that runs."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while task := self._next():
            task()

    def _next(self) -> Callable[[], None] | None:
        """What is done now; None when closed and nothing is left."""
        with self._changed:
            was_idle = not self._queue
            while not (self._queue or self._patient or self._closed):
                self._changed.wait()
            if self._patient and (not self._queue or self._is_overdue()):
                return self._patient.popleft().run
            self._linger(was_idle)
            size = min(len(self._queue), self._batching().max_batch)
            batch = [self._queue.popleft() for _ in range(size)]
            return partial(self._work_on, batch) if batch else None

    def _work_on(self, batch: list[_Waiting[Item, Result]]) -> None:
        live = [each for each in batch if not each.future.cancelled()]
        if live:
            self._settle(live)

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._patient[0].since > PATIENCE_SECONDS

    def _linger(self, was_idle: bool) -> None:
        while self._queue and not self._closed:
            waited = time.monotonic() - self._queue[0].since
            left = wait_seconds(self._batching(), was_idle=was_idle, queued=len(self._queue), waited_seconds=waited)
            if left <= 0:
                return
            self._changed.wait(left)

    def _patiently(self, work: Callable[[], Other], future: asyncio.Future[Other]) -> None:
        if future.cancelled():
            return
        try:
            result = work()
        except Exception as error:
            self._hand_over([(future, None, error)])
        else:
            self._hand_over([(future, result, None)])

    def _settle(self, batch: list[_Waiting[Item, Result]]) -> None:
        try:
            results = self._work([each.item for each in batch])
        except Exception as error:
            self._hand_over([(each.future, None, error) for each in batch])
        else:
            self._hand_over([(each.future, result, None) for each, result in zip(batch, results, strict=True)])

    def _hand_over(self, outcomes: list[_Outcome]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, outcomes)


def _resolve(outcomes: list[_Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
