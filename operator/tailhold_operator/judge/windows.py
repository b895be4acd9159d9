"""From counters that pods keep to windows of time: restarts, pods that come and go, and their first minutes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailhold_operator.judge.counts import Window

MOST_AT_ONCE = 1e7
"""Requests of one pod between two looks. More are no requests: a counter that is not one."""


@dataclass(frozen=True)
class Reading:
    """One pod's counters of one objective, as they stood at one look."""

    total: float
    bad: float
    slow: tuple[float, ...] = ()
    """Requests beyond each of the thresholds below the objective's, the highest first."""
    warm: bool = True
    """Its first minutes, in which caches fill and kernels are compiled, are over. Requests of before are left out."""

    @property
    def counters(self) -> tuple[float, ...]:
        """All of them, which only grow while the pod runs."""
        return (self.total, self.bad, *self.slow)


def window(before: Mapping[str, Reading], now: Mapping[str, Reading]) -> Window | None:
    """What all pods together added between two looks, by their uid; None where no pod was seen in both.

    A pod that is new, was cold, or started again in between has counters that began at another time: it counts from
    this look on. What a pod that has gone added after it was looked at last is lost, and only that.
    """
    grown = (_grown(before.get(uid), reading) for uid, reading in now.items())
    return joined([each for each in grown if each])


def joined(windows: Sequence[Window]) -> Window | None:
    """All of them together; None of none.

    Pods of another image may count beyond other thresholds: what is beyond the lower ones is then not added up.
    """
    if not windows:
        return None
    alike = len({len(each.slow) for each in windows}) == 1
    slow = tuple(map(sum, zip(*(each.slow for each in windows), strict=True))) if alike else ()
    return Window(sum(each.total for each in windows), sum(each.bad for each in windows), slow)


def _grown(before: Reading | None, now: Reading) -> Window | None:
    if before is None or not before.warm or len(before.slow) != len(now.slow):
        return None
    total, bad, *slow = (after - earlier for earlier, after in zip(before.counters, now.counters, strict=True))
    return Window(total, bad, tuple(slow)) if min(total, bad, *slow) >= 0 and total <= MOST_AT_ONCE else None
