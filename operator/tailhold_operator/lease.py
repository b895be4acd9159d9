"""Who writes: of several operators the one that holds a Lease, as long as it can prove it by its own clock.

Kubernetes cannot fence off a writer that was paused, so a leader stops well before another may start: it
counts from when it last asked, on a clock that no one sets. The Lease's own times are for people only.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tailhold_operator.cluster import Cluster
from tailhold_operator.errors import ClusterError, NotLeaderError
from tailhold_operator.kinds import KINDS, Manifest, Ref

LEASE_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10
RETRY_SECONDS = 2


@dataclass(frozen=True)
class Observed:
    """What was seen of another's Lease, and since when it looks so."""

    version: str
    since: float


class Lease:
    """One operator's part in the election."""

    def __init__(
        self,
        cluster: Cluster,
        ref: Ref,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._ref = ref
        self._identity = identity
        self._clock = clock
        self._now = now
        self._renewed: float | None = None
        self._observed: Observed | None = None

    @property
    def may_write(self) -> bool:
        """Whether the Lease is ours for certain."""
        return self._renewed is not None and self._clock() - self._renewed < RENEW_DEADLINE_SECONDS

    def check(self) -> None:
        """Raises NotLeaderError unless writing is allowed now."""
        if not self.may_write:
            raise NotLeaderError(f"{self._ref} is not held by {self._identity}")

    async def attempt(self) -> bool:
        """Take or renew the Lease once; says whether it is ours."""
        asked = self._clock()
        try:
            async with asyncio.timeout(RENEW_DEADLINE_SECONDS / 2):
                won = await self._attempt()
        except (ClusterError, TimeoutError):
            return self.may_write
        self._renewed = asked if won else None
        return won

    async def release(self) -> None:
        """Give the Lease up, so that the next one need not wait for it to run out."""
        if not self.may_write:
            return
        self._renewed = None
        try:
            found = await self._cluster.read(self._ref)
            if found and found["spec"].get("holderIdentity") == self._identity:
                await self._cluster.replace(found | {"spec": found["spec"] | {"holderIdentity": ""}})
        except ClusterError:
            return

    async def _attempt(self) -> bool:
        found = await self._cluster.read(self._ref)
        if found is None:
            return await self._cluster.create(self._render(None))
        holder = found["spec"].get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._has_run_out(found):
            return False
        await self._cluster.replace(self._render(found))
        return True

    def _has_run_out(self, found: Manifest) -> bool:
        """Whether another's Lease stayed as it is for its whole length: measured here, not read there."""
        version = found["metadata"]["resourceVersion"]
        if self._observed is None or self._observed.version != version:
            self._observed = Observed(version, self._clock())
        length = int(found["spec"].get("leaseDurationSeconds", LEASE_SECONDS))
        return self._clock() - self._observed.since >= length

    def _render(self, found: Manifest | None) -> Manifest:
        before = found["spec"] if found else {}
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = before.get("holderIdentity") == self._identity
        metadata = {"name": self._ref.name, "namespace": self._ref.namespace}
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": stamp,
            "acquireTime": before.get("acquireTime", stamp) if mine else stamp,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if mine or not found else 1),
        }
        head = {"apiVersion": KINDS["Lease"].api_version, "kind": "Lease"}
        return head | {"metadata": found["metadata"] if found else metadata, "spec": spec}


class GuardedCluster:
    """A cluster that is written to by the leader alone."""

    def __init__(self, cluster: Cluster, lease: Lease) -> None:
        self._cluster = cluster
        self._lease = lease

    async def read(self, ref: Ref) -> Manifest | None:
        """Reading is for all."""
        return await self._cluster.read(ref)

    async def find(self, kind: str, namespace: str, labels: str) -> tuple[Manifest, ...]:
        """Reading is for all."""
        return await self._cluster.find(kind, namespace, labels)

    async def named(self, ref: Ref) -> Manifest | None:
        """Reading is for all."""
        return await self._cluster.named(ref)

    async def warnings(self, namespace: str, uid: str) -> tuple[Manifest, ...]:
        """Reading is for all."""
        return await self._cluster.warnings(namespace, uid)

    async def pipelines(self, namespace: str | None) -> tuple[Manifest, ...]:
        """Reading is for all."""
        return await self._cluster.pipelines(namespace)

    async def apply(self, manifest: Manifest, uid: str) -> None:
        """For the leader."""
        self._lease.check()
        await self._cluster.apply(manifest, uid)

    async def merge(self, ref: Ref, uid: str, change: Manifest) -> None:
        """For the leader."""
        self._lease.check()
        await self._cluster.merge(ref, uid, change)

    async def delete(self, ref: Ref, uid: str) -> None:
        """For the leader."""
        self._lease.check()
        await self._cluster.delete(ref, uid)

    async def apply_status(self, pipeline: Manifest, status: Manifest) -> None:
        """For the leader."""
        self._lease.check()
        await self._cluster.apply_status(pipeline, status)

    async def create(self, manifest: Manifest) -> bool:
        """For the leader."""
        self._lease.check()
        return await self._cluster.create(manifest)

    async def replace(self, manifest: Manifest) -> None:
        """For the leader."""
        self._lease.check()
        await self._cluster.replace(manifest)
