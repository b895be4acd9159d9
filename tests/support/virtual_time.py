"""An event loop whose time is a number: a sleep takes none, and lasts exactly as long as it says."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    """Instead of waiting, time goes on by what would have been waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for something that never comes"
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run it on such a loop, from time 0."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
