"""What is remembered of a pipeline: each pod's counters at the last look, and what each look found added."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple, TypeAlias

from tailhold_operator.judge.counts import Window
from tailhold_operator.judge.reading import Counter
from tailhold_operator.judge.watched import Look, Watched
from tailhold_operator.judge.windows import Reading, joined, window
from tailhold_operator.observe import Pod
from tailhold_operator.sides import answers

WARM_UP_SECONDS = 30.0
"""After a pod became ready: caches fill, kernels are compiled."""
AGES = ((900.0, 60.0), (7200.0, 600.0))
"""Looks that are older than so many seconds are joined to one for each so many seconds."""
KEPT_SECONDS = 86400.0

Counters: TypeAlias = Mapping[Counter, Reading]
"""Of one pod."""


class Moment(NamedTuple):
    """When something was seen, by two clocks."""

    at: datetime
    """What the machine takes for the time; it may jump."""
    ticks: float
    """Seconds that only ever go on, from some beginning."""


class _Stamped(NamedTuple):
    ticks: float
    look: Look


@dataclass
class _Known:
    """What is known of a pod."""

    restarts: int
    ready_since: float | None = None
    """Ticks; None while it never was ready."""
    read_at: float | None = None
    """Ticks of the last time it answered."""
    warm: bool = False
    """Whether it was warm then."""
    counters: dict[Counter, Reading] = field(default_factory=dict)
    """Each as it stood when it was last told."""

    @property
    def told_at(self) -> float:
        """Ticks of the last time it answered, or of when that could first be expected."""
        return self.read_at if self.read_at is not None else self.ready_since or 0.0

    def counts_on(self, counters: Counters) -> bool:
        """Whether what it says now goes on from what it said before: it was warm, and did not start again."""
        both = ((self.counters[name], now) for name, now in counters.items() if name in self.counters)
        return self.warm and all(now.total >= before.total for before, now in both)


class Memory:
    """Of one pipeline."""

    def __init__(self) -> None:
        self._pods: dict[str, _Known] = {}
        self._needed: frozenset[str] = frozenset()
        self._looks: list[_Stamped] = []
        self._aged: float = 0.0
        self.trouble = ""
        """Why not all could be read at the last look."""

    def meet(self, pods: Collection[Pod], moment: Moment) -> None:
        """These are the pods now; what is known of others is forgotten."""
        self._pods = {pod.uid: self._met(pod, moment) for pod in pods}
        self._needed = frozenset(pod.uid for pod in pods if answers(pod))

    def take(self, told: Mapping[str, Counters], moment: Moment, trouble: str = "") -> None:
        """What the pods that could be read say, by their UID; a pod that is not known is passed over."""
        told = {uid: counters for uid, counters in told.items() if uid in self._pods}
        found = self._added(told)
        for uid, counters in told.items():
            known = self._pods[uid]
            known.counters |= counters
            known.warm = known.ready_since is not None and moment.ticks - known.ready_since >= WARM_UP_SECONDS
            known.read_at = moment.ticks
        self.trouble = trouble
        if found:
            self._looks.append(_Stamped(moment.ticks, Look(moment.at, found)))
        if moment.ticks - self._aged >= AGES[0][1]:
            self._looks, self._aged = aged(self._looks, moment.ticks), moment.ticks

    def watched(self, now: Moment) -> Watched:
        """As a judge is shown it now.

        No look is younger than it can be: one that was stamped while the clock was ahead would count for a step that
        began after it.
        """
        looks = tuple(_not_after(look, now.at - timedelta(seconds=now.ticks - ticks)) for ticks, look in self._looks)
        read_at = now.at - timedelta(seconds=max(0.0, self.unread_seconds(now.ticks)))
        return Watched(looks, read_at if self._needed else None, self.trouble)

    def unread_seconds(self, ticks: float) -> float:
        """How long ago the pod was read that was read longest ago, of those that a Service would send questions to;
        one that has just become ready is given the time to be."""
        return max((ticks - self._pods[uid].told_at for uid in self._needed), default=0.0)

    def _met(self, pod: Pod, moment: Moment) -> _Known:
        known = self._pods.get(pod.uid)
        if known is None:
            return _Known(pod.restarts, moment.ticks - _ready_seconds(pod, moment.at) if pod.ready else None)
        if known.restarts != pod.restarts:
            return _Known(pod.restarts, moment.ticks if pod.ready else None)
        if known.ready_since is None and pod.ready:
            known.ready_since = moment.ticks
        return known

    def _added(self, told: Mapping[str, Counters]) -> dict[str, dict[str, Window]]:
        """What all pods added since each was read last, by revision and objective; nothing of what got no request."""
        before = {uid: self._pods[uid].counters for uid in told if self._pods[uid].counts_on(told[uid])}
        found: dict[str, dict[str, Window]] = {}
        for counter in sorted({counter for counters in told.values() for counter in counters}):
            now = {uid: counters[counter] for uid, counters in told.items() if counter in counters}
            then = {uid: before[uid].get(counter) or _none_of(now[uid]) for uid in now if uid in before}
            added = window(then, now)
            if added and added.total:
                found.setdefault(counter.revision, {})[counter.objective] = whole(added)
        return found


def _ready_seconds(pod: Pod, now: datetime) -> float:
    """How long it has been ready when it is met for the first time; another machine's clock may be ahead."""
    try:
        since = datetime.fromisoformat(pod.ready_since.replace("Z", "+00:00"))
        return max(0.0, (now - since).total_seconds())
    except (ValueError, TypeError):
        return 0.0


def _none_of(reading: Reading) -> Reading:
    """A counter that was not there when its pod was read before: it began at nothing since."""
    return Reading(0, 0, (0,) * len(reading.slow))


def whole(window: Window) -> Window:
    """In whole numbers, which take a third of the memory."""
    return Window(round(window.total), round(window.bad), tuple(map(round, window.slow)))


def _not_after(look: Look, moment: datetime) -> Look:
    return look if look.at <= moment else replace(look, at=moment)


def aged(looks: Iterable[_Stamped], ticks: float) -> list[_Stamped]:
    """Old looks joined, and those that are too old left out. What they counted together stays the same."""
    kept = (each for each in looks if ticks - each.ticks <= KEPT_SECONDS)
    return [_together(list(group)) for _, group in groupby(kept, lambda each: _cell(each.ticks, ticks))]


def _cell(then: float, now: float) -> tuple[float, float]:
    """What looks have in common that are joined."""
    span = next((span for age, span in reversed(AGES) if now - then > age), 0.0)
    return (span, then // span if span else then)


def _together(looks: list[_Stamped]) -> _Stamped:
    """One look at the moment of the first: what began before a step is left out of it, and never the other way."""
    first = looks[0]
    if len(looks) == 1:
        return first
    counters = dict.fromkeys(
        (revision, name) for each in looks for revision, found in each.look.windows.items() for name in found
    )
    windows: dict[str, dict[str, Window]] = {}
    for revision, name in counters:
        found = (each.look.windows.get(revision, {}).get(name) for each in looks)
        both = joined([each for each in found if each])
        windows.setdefault(revision, {})[name] = both or Window(0, 0)
    return _Stamped(first.ticks, Look(first.look.at, windows))
