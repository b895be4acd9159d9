"""How long a client is waited for that sends a body: what trickles must not hold a place for ever."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

LEAST_BYTES_PER_SECOND = 1024
"""A client that sends less than this, on and on, is as good as one that sends nothing."""
Value = TypeVar("Value")


class Patience:
    """Waiting uses it up, and bytes that come bring it back. Only time counts in which the client is waited for."""

    def __init__(self, seconds: float) -> None:
        self._most = self._left = seconds

    async def wait(self, coming: Awaitable[Value]) -> Value:
        """Raises TimeoutError once it is used up."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(self._left):
                return await coming
        finally:
            self._left -= loop.time() - began

    def came(self, size: int) -> None:
        """So many bytes."""
        self._left = min(self._most, self._left + size / LEAST_BYTES_PER_SECOND)

    def renew(self) -> None:
        """All of it: something is done, and the next thing begins."""
        self._left = self._most
