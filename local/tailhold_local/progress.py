"""Says what is being done and how long it takes, on a terminal as on a log."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Progress:
    """Prints one line per step: with a running timer on a terminal, else once when the step ends."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Time what happens inside and show it under `title`."""
        started, done = time.monotonic(), threading.Event()
        ticker = threading.Thread(target=self._tick, args=(title, started, done), daemon=True)
        ticker.start()
        try:
            yield
        except BaseException:
            self._finish(ticker, done, f"  ✗ {title} ({time.monotonic() - started:.1f} s)")
            raise
        self._finish(ticker, done, f"  ✓ {title} ({time.monotonic() - started:.1f} s)")

    def say(self, line: str) -> None:
        """Print one line."""
        print(line, file=self._stream, flush=True)

    def _tick(self, title: str, started: float, done: threading.Event) -> None:
        if not self._stream.isatty():
            if not done.wait(10):
                self.say(f"  … {title}")
            return
        while not done.wait(0.2):
            self._stream.write(f"\r  … {title} {time.monotonic() - started:.0f} s")
            self._stream.flush()

    def _finish(self, ticker: threading.Thread, done: threading.Event, line: str) -> None:
        done.set()
        ticker.join()
        if self._stream.isatty():
            self._stream.write("\r\033[K")
        self.say(line)


class Silent(Progress):
    """Shows nothing; for tests and for callers with a display of their own."""

    def say(self, line: str) -> None:
        """Swallow the line."""

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Run what is inside."""
        yield
