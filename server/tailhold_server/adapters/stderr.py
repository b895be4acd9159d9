"""What the engine's process says last on standard error: when it cannot start, its reason is nowhere else."""

import os
import re
import threading
from collections import deque
from collections.abc import Iterable
from types import TracebackType

KEPT_LINES = 400
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): \S.*")


def last_error(lines: Iterable[str]) -> str | None:
    """The last line that ends a traceback, as in `ValueError: no such model`."""
    found = [line.strip() for line in lines if _ERROR.match(line)]
    return found[-1] if found else None


class Overheard:
    """While it is entered, children are started with a standard error that is passed on and whose end is kept."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._own = -1

    def __enter__(self) -> "Overheard":
        self._own = os.dup(2)
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(writing)
        # A child keeps its end for as long as it lives, so what it writes is passed on for as long.
        threading.Thread(target=self._pass_on, args=(reading, self._own), name="stderr", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.dup2(self._own, 2)

    def last_error(self) -> str | None:
        """The last error that a child has told of so far."""
        return last_error(tuple(self._lines))

    def _pass_on(self, reading: int, own: int) -> None:
        with os.fdopen(reading, "rb") as stream, os.fdopen(own, "wb", buffering=0) as onward:
            for line in stream:
                onward.write(line)
                self._lines.append(line.decode(errors="replace"))
