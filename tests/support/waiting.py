"""Waiting for a condition, with a bound and the last thing seen in the failure."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def until(look: Callable[[], Seen], holds: Callable[[Seen], object], *, seconds: float, every: float = 0.5) -> Seen:
    """What `look` gave once it holds. Fails with what it gave last."""
    deadline = time.monotonic() + seconds
    seen = look()
    while not holds(seen):
        assert time.monotonic() < deadline, f"not within {seconds} s; seen last: {str(seen)[:2000]}"
        time.sleep(every)
        seen = look()
    return seen
