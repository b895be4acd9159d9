"""Latency of serving pods between two looks. Kept in memory: after a restart there is no figure yet."""

import asyncio
from collections.abc import Mapping

from tailhold_operator.carrying import front_pods
from tailhold_operator.kinds import Ref
from tailhold_operator.latency import Buckets, added, grown, quantile_milliseconds
from tailhold_operator.observe import Seen
from tailhold_operator.pods import Pods

_SHARE = 0.99


class Sampler:
    """Remembers each pod's counters of the last look."""

    def __init__(self) -> None:
        self._last: dict[Ref, Mapping[str, Buckets]] = {}

    async def p99(self, key: Ref, seen: Seen, pods: Pods) -> int | None:
        """The 99th percentile of what came since the last look; None where that was nothing."""
        front = front_pods(seen)
        told = await asyncio.gather(*map(pods.buckets, front))
        now = {pod.uid: buckets for pod, buckets in zip(front, told, strict=True)}
        before, self._last[key] = self._last.get(key, {}), now
        news = [grown(before[uid], buckets) for uid, buckets in now.items() if uid in before]
        return quantile_milliseconds(added(news), _SHARE)

    def forget(self, key: Ref) -> None:
        """A pipeline that is gone."""
        self._last.pop(key, None)
