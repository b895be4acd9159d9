"""The steps of a start, some of them side by side, with the time that each took."""

import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakSet

from tailhold_server.health import Phase

Result = TypeVar("Result")
_APART: "WeakSet[threading.Thread]" = WeakSet()
"""Threads of `apart`."""


@dataclass(frozen=True)
class Span:
    """A step, in milliseconds since the start."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True)
class Row:
    """A step as it is told, in milliseconds."""

    name: str
    began: int
    milliseconds: int
    overlapped: int
    """Of these, how many had another step beside them: the rest is what a faster step would save."""


def table(spans: Iterable[Span]) -> tuple[Row, ...]:
    """The rows, by when each began."""
    known = sorted(spans, key=lambda span: (span.began, span.ended))
    return tuple(_row(span, [other for other in known if other is not span]) for span in known)


def _row(span: Span, others: Iterable[Span]) -> Row:
    overlapped, reached = 0.0, span.began
    for other in others:
        start, end = max(other.began, reached), min(other.ended, span.ended)
        if end > start:
            overlapped += end - start
            reached = end
    return Row(span.name, round(span.began), round(span.ended - span.began), round(overlapped))


class Timeline:
    """Takes the time of each step. `phase` is told whenever another step is the furthest that runs."""

    def __init__(self, show: Callable[[Phase], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._zero = clock()
        self._running: list[Phase] = []
        self._spans: list[Span] = []

    @contextmanager
    def step(self, phase: Phase) -> Iterator[None]:
        """A step that is done when the block is; one that failed is told as well."""
        began = self._now()
        self._running.append(phase)
        self._show(self._furthest())
        try:
            yield
        finally:
            self._running.remove(phase)
            self._spans.append(Span(phase.value, began, self._now()))
            if self._running:
                self._show(self._furthest())

    def rows(self) -> tuple[Row, ...]:
        """Of the steps that are done."""
        return table(self._spans)

    def _furthest(self) -> Phase:
        return max(self._running, key=list(Phase).index)

    def _now(self) -> float:
        return 1000 * (self._clock() - self._zero)


async def apart(work: Callable[[], Result], name: str = "start") -> Result:
    """The result of slow work in a thread of its own, which is left alone when this is cancelled.

    A thread cannot be ended. This one holds up neither what comes next nor the end of the program.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()
    thread = threading.Thread(target=_settle, args=(work, loop, done), name=name, daemon=True)
    _APART.add(thread)
    thread.start()
    return await done


def left(code: int) -> int:
    """The exit code of a program that has ended all that it can.

    Where a thread still works apart, the process ends here and now: at the interpreter's end the C++ of a library that
    is being loaded would abort, with another code.
    """
    if any(thread.is_alive() for thread in _APART):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def _settle(work: Callable[[], Result], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[Result]") -> None:
    finished: concurrent.futures.Future[Result] = concurrent.futures.Future()
    try:
        finished.set_result(work())
    except BaseException as error:  # it is raised where it is waited for
        finished.set_exception(error)
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_hand_over, finished, done)


def _hand_over(finished: "concurrent.futures.Future[Result]", done: "asyncio.Future[Result]") -> None:
    if done.done():
        return
    error = finished.exception()
    if error is None:
        done.set_result(finished.result())
    else:
        done.set_exception(error)
