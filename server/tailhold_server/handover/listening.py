"""When a candidate's stream passed which point, as the pod's own answers are marked."""

import time
from collections.abc import Callable

from tailhold_server import sse
from tailhold_server.handover.events import News, news
from tailhold_server.stages import Marks


class Listening:
    """Told of events as they arrive, and when the client has taken them: one that lags behind stretches no wait."""

    def __init__(self, marks: Marks, clock: Callable[[], float] = time.monotonic) -> None:
        self._marks = marks
        self._clock = clock
        self._beginning = b""

    def arrived(self, events: bytes) -> None:
        """Whole events."""
        if events == sse.COMMENT:
            return
        marks, now = self._marks, self._clock()
        if marks.first_token is None:
            self._beginning += events
            if news(self._beginning) is News.TOKEN:
                marks.first_token, self._beginning = now, b""
        elif marks.awaited is not None:
            marks.longest_gap = max(marks.longest_gap, now - marks.awaited)
        marks.awaited = None

    def taken(self) -> None:
        """The client has what arrived, and waits for the next token."""
        if self._marks.first_token is not None and self._marks.awaited is None:
            self._marks.awaited = self._clock()

    def ended(self) -> None:
        """Nothing more comes."""
        self._marks.finished, self._marks.awaited = self._clock(), None
