"""Keys that wait for their turn: each once, edits first, and none more often than it can matter."""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable

from tailhold_operator.kinds import Ref

_FIRST_RETRY_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 60.0
_AT_ONCE = float("-inf")


class WorkQueue:
    """A key in work is not handed out again before it is done; what happened meanwhile is not lost."""

    def __init__(self, clock: Callable[[], float], spacing_seconds: float = 0.5) -> None:
        self._clock = clock
        self._spacing = spacing_seconds
        self._due: dict[Ref, float] = {}
        self._heap: list[tuple[float, int, Ref]] = []
        self._order = itertools.count()
        self._running: dict[Ref, float] = {}
        self._started: dict[Ref, float] = {}
        self._failures: dict[Ref, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Ref, *, urgent: bool = False) -> None:
        """Ask for a pass. An urgent one overtakes all that wait."""
        soonest = self._started.get(key, _AT_ONCE) + self._spacing
        self._want(key, _AT_ONCE if urgent else max(self._clock(), soonest))

    def add_after(self, key: Ref, seconds: float) -> None:
        """Ask for a pass later, unless one is asked for sooner."""
        self._want(key, self._clock() + seconds)

    def retry(self, key: Ref) -> float:
        """Ask for a pass after a failure; says after how many seconds: more with each failure."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        delay = min(_LONGEST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * float(2 ** min(count, 10)))
        jittered: float = delay * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load, guards nothing
        self.add_after(key, jittered)
        return jittered

    def succeeded(self, key: Ref) -> None:
        """Forget failures."""
        self._failures.pop(key, None)

    def forget(self, key: Ref) -> None:
        """A key that is gone."""
        for known in (self._failures, self._started, self._due):
            known.pop(key, None)

    async def get(self) -> Ref:
        """The next key, once one is due."""
        while True:
            key = self._take()
            if key is not None:
                return key
            self._changed.clear()
            await self._wait()

    def done(self, key: Ref) -> None:
        """A pass has ended, well or not."""
        self._running.pop(key, None)
        if key in self._due:
            self._push(key, self._due[key])

    def oldest_seconds(self) -> float:
        """How long the pass runs that runs longest, or the key waits that should have had its turn."""
        now = self._clock()
        late = [now - due for due in self._due.values() if _AT_ONCE < due < now]
        return max([0.0, *late, *(now - since for since in self._running.values())])

    def __len__(self) -> int:
        return len(self._due)

    def _want(self, key: Ref, due: float) -> None:
        if self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        if key not in self._running:
            self._push(key, due)

    def _push(self, key: Ref, due: float) -> None:
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._changed.set()

    def _take(self) -> Ref | None:
        while self._heap and self._heap[0][0] <= self._clock():
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due and key not in self._running:
                del self._due[key]
                self._running[key] = self._started[key] = self._clock()
                return key
        return None

    async def _wait(self) -> None:
        left = self._heap[0][0] - self._clock() if self._heap else None
        try:
            async with asyncio.timeout(left if left is None else max(0.0, left)):
                await self._changed.wait()
        except TimeoutError:
            return
