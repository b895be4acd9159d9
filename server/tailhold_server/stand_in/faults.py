"""What makes a stand-in worse while it runs: small files, one of the pod and one of its node."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tailhold_api.stand_in import StandIn, StandInError, changed, told

_LOG = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
"""How often the files are looked at, and only when somebody asks."""
_MOST_BYTES = 4000

Stamp = tuple[int, int, int] | None


class Faults:
    """What holds now: what was stated, then each file laid over it, the last one over all."""

    def __init__(self, stated: StandIn, files: Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._stated = self._now = stated
        self._files = tuple(files)
        self._clock = clock
        self._looked = -LOOK_SECONDS
        self._stamps: tuple[Stamp, ...] = (None,) * len(self._files)

    def __call__(self) -> StandIn:
        """A file with a mistake changes nothing, and the log says which key it is."""
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look()
        return self._now

    def _look(self) -> None:
        stamps = tuple(_stamp(file) for file in self._files)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        found = self._stated
        for file in self._files:
            try:
                found = changed(found, _text(file))
            except StandInError as error:
                _LOG.error("%s: %s; what held before holds on", file, error)
                return
        if found != self._now:
            _LOG.warning("the stand-in engine behaves otherwise from now on: %s", told(found))
        self._now = found


def _stamp(file: Path) -> Stamp:
    try:
        found = os.stat(file)  # noqa: PTH116  the cheapest look there is, on the event loop
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _text(file: Path) -> str:
    """Empty where there is none."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
