"""An event loop that wakes to the microsecond: epoll alone sleeps in whole milliseconds, rounded up."""

import asyncio
import select
import selectors
import sys


def punctual_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are late by the kernel's slack only."""
    if sys.platform == "linux":
        return asyncio.SelectorEventLoop(_PunctualSelector())
    return asyncio.new_event_loop()


class _PunctualSelector(selectors.EpollSelector):
    """Waits with select(2), whose timeout is fine, for the one descriptor of epoll."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            select.select([self.fileno()], [], [], timeout)
            timeout = 0
        return super().select(timeout)
