"""How far a long step is, told so coarsely that a download of hours writes the status some hundred times at most."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from tailhold_api import codec
from tailhold_api.status import Progress

BYTES = "bytes"
_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def read_progress(told: Mapping[str, Any] | None) -> Progress | None:
    """What a pod says of itself, where it can be understood."""
    if not told:
        return None
    try:
        return codec.load_lenient(Progress, dict(told))
    except ValidationError:
        return None


def coarse(progress: Progress) -> Progress:
    """Of bytes whole hundredths alone, with the time that is left in steps of 10 s, a minute, or 10 minutes; more than
    a day is not worth a number."""
    if progress.unit != BYTES or not progress.total:
        return progress
    done = min(100, progress.done * 100 // progress.total) * progress.total // 100
    left = progress.eta_seconds
    return progress.model_copy(update={"done": done, "eta_seconds": _rounded(left)})


def words(progress: Progress) -> str:
    """As a person reads it: `fetching m: 3.1 of 14.9 GiB, about 2 min left`."""
    if progress.unit != BYTES:
        total = f" of {progress.total}" if progress.total else ""
        return f"{progress.step}: {progress.done}{total} {progress.unit}"
    if not progress.total:
        return progress.step
    size, unit = next((each for each in _UNITS if progress.total >= each[0]), (1, BYTES))
    digits = 0 if size == 1 else 1
    amount = f"{progress.done / size:.{digits}f} of {progress.total / size:.{digits}f} {unit}"
    return f"{progress.step}: {amount}{_left(progress.eta_seconds)}"


def _rounded(seconds: int | None) -> int | None:
    if seconds is None or seconds > _DAY:
        return None
    step = 10 if seconds < _MINUTE else _MINUTE if seconds < _HOUR else 10 * _MINUTE
    return -(-seconds // step) * step


def _left(seconds: int | None) -> str:
    if seconds is None:
        return ""
    return f", about {f'{seconds} s' if seconds < _MINUTE else f'{round(seconds / _MINUTE)} min'} left"
