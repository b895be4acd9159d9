"""From counters that pods keep to windows of time: restarts, pods that come and go, and their first minutes."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailhold_operator.judge.counts import Window


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
    this look on. What a pod that has gone added after it was looked at last is lost, and only that. Pods of another
    image may count beyond other thresholds; they are added up only where there are as many.
    """
    grown = [found for uid, reading in now.items() if (found := _grown(before.get(uid), reading))]
    if len({len(each) for each in grown}) != 1:
        return None
    total, bad, *slow = (sum(each) for each in zip(*grown, strict=True))
    return Window(total, bad, tuple(slow))


def _grown(before: Reading | None, now: Reading) -> tuple[float, ...] | None:
    if before is None or not before.warm or len(before.slow) != len(now.slow):
        return None
    added = tuple(after - earlier for earlier, after in zip(before.counters, now.counters, strict=True))
    return added if min(added) >= 0 else None
