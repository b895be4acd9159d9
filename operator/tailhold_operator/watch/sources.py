"""Where counters are read: from the pods themselves."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tailhold_operator.judge.reading import read_objectives, readings
from tailhold_operator.observe import Pod
from tailhold_operator.pods import Pods, Unanswered
from tailhold_operator.sides import answers
from tailhold_operator.watch.memory import Counters
from tailhold_operator.watch.target import Target

_AT_ONCE = 64
_SUSPECTS_AT_ONCE = 16
_NAMED = 3


@dataclass(frozen=True)
class Told:
    """What one look found."""

    counters: Mapping[str, Counters]
    """Of the pods that could be read, by UID."""
    trouble: str = ""
    """Why others could not."""


class Source(Protocol):
    """Where the counters of a pipeline's pods are read."""

    async def read(self, target: Target) -> Told:
        """All of them as they stand. Never raises, and ends within a few seconds."""


class PodSource:
    """Asks each pod. Those that did not answer last time wait for each other, and nobody waits for them."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._gate, self._slow_gate = asyncio.Semaphore(_AT_ONCE), asyncio.Semaphore(_SUSPECTS_AT_ONCE)
        self._suspects: set[str] = set()

    async def read(self, target: Target) -> Told:
        """All pods at once."""
        told = await asyncio.gather(*(self._ask(pod, target) for pod in target.pods))
        by_pod = list(zip(target.pods, told, strict=True))
        counters = {pod.uid: each for pod, each in by_pod if not isinstance(each, Unanswered)}
        return Told(
            counters, _words([(pod, each) for pod, each in by_pod if isinstance(each, Unanswered) and answers(pod)])
        )

    async def _ask(self, pod: Pod, target: Target) -> Counters | Unanswered:
        async with self._slow_gate if pod.uid in self._suspects else self._gate:
            text = await self._pods.metrics(pod)
        found = text if isinstance(text, Unanswered) else read_objectives(text)
        if found is None or isinstance(found, Unanswered):
            self._suspects.add(pod.uid)
            return found or Unanswered("what it says at /metrics is no metrics")
        self._suspects.discard(pod.uid)
        return readings(found, target.slo.objectives, target.revisions.get(pod.uid, ""))


def _words(silent: list[tuple[Pod, Unanswered]]) -> str:
    return named([f"pod {pod.name}: {each.words}" for pod, each in silent], "; ")


def named(told: list[str], between: str = ", ") -> str:
    """The first few, and how many more there are."""
    more = f"{between}and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return between.join(told[:_NAMED]) + more
