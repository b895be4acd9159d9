"""Whether processes do anything, as Linux tells in `/proc`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_STOPPED = ("T", "t")
_WANTS_TO_RUN = ("R", "D")
"""Running or waiting for a core, and waiting for the disk: a starved or paging machine is no stall."""
_SHARE = 0.05
"""Of one core: more is work. Threads that wake up to look around and sleep on take less."""
_OLD_SECONDS = 5.0
"""What was used since a look so long ago says nothing of now."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class _Stat(NamedTuple):
    state: str
    ticks: int


def family(pids: Iterable[int]) -> list[int]:
    """These processes and all that they started."""
    found: list[int] = []
    left = list(pids)
    while left:
        pid = left.pop()
        found.append(pid)
        left += map(int, _read(_PROC / str(pid) / "task" / str(pid) / "children").split())
    return found


def is_stopped(pids: Iterable[int]) -> bool:
    """Whether one of them was stopped, as by SIGSTOP or a debugger."""
    return any((stat := _stat(_PROC / str(pid))) is not None and stat.state in _STOPPED for pid in pids)


class Effort:
    """Tells from one look to the next whether processes worked in between."""

    def __init__(self) -> None:
        self._ticks: dict[int, int] = {}
        self._at = 0.0

    def is_at_work(self, pids: Iterable[int], now: float) -> bool:
        """Whether a thread is to be run now, or more than a twentieth of a core was used since the last look.

        Work where /proc does not tell of them: nothing is known then.
        """
        listed = list(pids)
        stats = {pid: _stat(_PROC / str(pid)) for pid in listed}
        known = {pid: stat.ticks for pid, stat in stats.items() if stat}
        used = sum(ticks - self._ticks.get(pid, ticks) for pid, ticks in known.items())
        passed = now - self._at
        worked = passed < _OLD_SECONDS and used > _SHARE * _TICKS_PER_SECOND * passed
        self._ticks, self._at = known, now
        return worked or len(known) < len(listed) or any(_has_thread_to_run(pid) for pid in known)


def _has_thread_to_run(pid: int) -> bool:
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return False
    return any((stat := _stat(thread)) is not None and stat.state in _WANTS_TO_RUN for thread in threads)


def _stat(folder: Path) -> _Stat | None:
    """The name in it may hold blanks and brackets: what is read stands behind the last one."""
    fields = _read(folder / "stat").rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[11]) + int(fields[12])) if len(fields) > 12 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
