"""Requests that reach a simulated pipeline, and what its servers would count of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

from tailhold_api import names
from tailhold_api.slo import Objective
from tailhold_operator.judge.counts import Window
from tailhold_operator.judge.watched import Look, Watched
from tailhold_operator.kinds import Manifest, Ref, label_of
from tailhold_operator.observe import read_pod
from tailhold_operator.revisions import revision_name
from tailhold_operator.sides import answers
from tailhold_operator.watch.target import Target

if TYPE_CHECKING:
    from worlds import Stage

OBJECTIVE = {"metric": "EndToEnd", "thresholdMilliseconds": 500, "percent": 95}
NAME = Objective(metric="EndToEnd", threshold_milliseconds=500, percent=95).name


@dataclass
class Traffic:
    """Comes in at the Service; each pod there answers, or hands over as it was told."""

    rate: float = 0.0
    """Requests a second."""
    bad: Callable[[str], float] = field(default=lambda revision: 0.01)
    """Share of a revision's requests that break the objective."""
    random: Random = field(default_factory=lambda: Random(1))  # noqa: S311
    blind: bool = False
    """Whether the counters cannot be read."""
    looks: list[Look] = field(default_factory=list)
    read_at: datetime | None = None
    answered: Counter[str] = field(default_factory=Counter)
    """Requests by revision, all in all."""
    lost: int = 0
    """Requests that nobody was there for."""
    wake: Callable[[Ref], None] = field(default=lambda key: None)

    async def run(self, may_look: Callable[[], bool]) -> None:
        """The test looks by itself."""

    def watched(self, key: Ref) -> Watched:
        """What the operator is told."""
        return Watched(tuple(self.looks), self.read_at)

    def saw(self, key: Ref, target: Target) -> None:
        """Nothing has to be found out."""

    def forget(self, key: Ref) -> None:
        """The pipeline is gone."""
        self.lose()

    def lose(self) -> None:
        """As after a restart of the operator."""
        self.looks, self.read_at = [], None

    def flow(self, stage: Stage, seconds: float) -> None:
        """So many seconds of it, and a look at their end."""
        total: Counter[str] = Counter()
        for revision, share in shares(stage).items():
            total[revision] = self._drawn(self.rate * seconds * share)
        if not total:
            self.lost += round(self.rate * seconds)
        self.answered += total
        if self.blind:
            return
        at = stage.clock.now
        windows = {name: {NAME: self._window(count, self.bad(name))} for name, count in total.items() if count}
        self.looks = [*self.looks[-2000:], Look(at, windows)]
        self.read_at = at

    def _drawn(self, mean: float) -> int:
        return int(mean) + (self.random.random() < mean - int(mean))

    def _window(self, count: int, share: float) -> Window:
        return Window(count, sum(self.random.random() < share for _ in range(count)))


def shares(stage: Stage) -> dict[str, float]:
    """Of all requests, by revision."""
    front = [pod for pod in pods(stage) if label_of(pod, names.LABEL_POD_PART) == stage.front()]
    there = {read_pod(pod).ip: pod for pod in pods(stage)}
    found: Counter[str] = Counter()
    for pod in front:
        handed = stage.pods.handed(read_pod(pod))
        takes = [there[each.ip] for each in handed.candidates if each.ip in there]
        weight = handed.weight_percent / 100 if takes else 0.0
        found[revision_of(stage, pod)] += (1 - weight) / len(front)
        for each in takes:
            found[revision_of(stage, each)] += weight / len(takes) / len(front)
    return {name: share for name, share in found.items() if share}


def pods(stage: Stage) -> list[Manifest]:
    """Server pods that answer."""
    found = [each for each in stage.cluster.of_kind("Pod") if label_of(each, names.LABEL_POD_PART)]
    return [each for each in found if "status" in each and answers(read_pod(each))]


def revision_of(stage: Stage, pod: Manifest) -> str:
    """What a pod counts its requests for."""
    return revision_name(*stage.pods.runs(read_pod(pod)))
