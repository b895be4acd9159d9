"""One fresh look at a pipeline: its object, its children by UID, and what its pods say."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tailhold_api import names
from tailhold_operator.cluster import Cluster
from tailhold_operator.kinds import CHILD_KINDS, Manifest, Ref, is_owned_by, is_terminating, owner_of, ref_of, uid_of
from tailhold_operator.observe import Pod, Report, Seen, is_over, jobs_of, pods_of
from tailhold_operator.pods import Pods

_AT_ONCE = 20
_ASKED_ABOUT = 3


async def look(cluster: Cluster, pods: Pods, key: Ref) -> Seen | None:
    """All of it; None where the pipeline is gone or going, and its children go with it by themselves."""
    pipeline = await cluster.read(key)
    if pipeline is None or is_terminating(pipeline):
        return None
    seen = _sorted(pipeline, await _children(cluster, pipeline))
    reports, progress, warnings = await asyncio.gather(
        _reports(pods, seen), _progress(pods, seen), _warnings(cluster, seen)
    )
    return replace(seen, reports=reports, progress=progress, warnings=warnings)


async def _children(cluster: Cluster, pipeline: Manifest) -> list[Manifest]:
    labels = f"{names.LABEL_PIPELINE_UID}={uid_of(pipeline)}"
    namespace = pipeline["metadata"]["namespace"]
    found = await asyncio.gather(*(cluster.find(kind, namespace, labels) for kind in CHILD_KINDS))
    return [child for each in found for child in each]


def _sorted(pipeline: Manifest, found: Iterable[Manifest]) -> Seen:
    """Labels find children, the owner's UID makes them ours; pods are owned by those whom we own."""
    uid = uid_of(pipeline)
    ours = [each for each in found if each["kind"] == "Pod" or is_owned_by(each, uid)]
    staying = {ref_of(each): each for each in ours if each["kind"] == "Pod" or not is_terminating(each)}
    return Seen(pipeline, staying, frozenset(ref_of(each) for each in ours) - frozenset(staying))


async def _reports(pods: Pods, seen: Seen) -> Mapping[str, Report]:
    asked = [pod for pod in _running(seen) if pod.pod_part]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(pod: Pod) -> Report | None:
        async with gate:
            return await pods.report(pod)

    told = await asyncio.gather(*map(ask, asked))
    return {pod.name: report for pod, report in zip(asked, told, strict=True) if report}


async def _progress(pods: Pods, seen: Seen) -> Mapping[str, Any] | None:
    building = {job.digest for job in jobs_of(seen) if not job.complete and not job.failed}
    asked = next((pod for pod in _running(seen) if pod.build in building), None)
    return await pods.progress(asked) if asked else None


async def _warnings(cluster: Cluster, seen: Seen) -> Mapping[str, str]:
    """What is said of that which does not get on; only the first few are asked about."""
    namespace = seen.pipeline["metadata"]["namespace"]
    asked = _held_up(seen)[:_ASKED_ABOUT]
    told = await asyncio.gather(*(cluster.warnings(namespace, uid) for uid in asked))
    return {uid: _newest(events) for uid, events in zip(asked, told, strict=True) if events}


def _held_up(seen: Seen) -> list[str]:
    """UIDs of Jobs that should have a pod and have none, and of pods whose containers are not made."""
    owners = {owner_of(each).get("uid") for each in seen.of_kind("Pod")}
    jobs = [uid_of(each) for each in seen.of_kind("Job") if uid_of(each) not in owners and not is_over(each)]
    return jobs + [pod.uid for pod in pods_of(seen) if pod.is_held_up and not pod.terminating]


def _newest(events: Iterable[Manifest]) -> str:
    newest = max(events, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))
    return f"{newest.get('reason', '')}: {newest.get('message', '')}"


def _running(seen: Seen) -> list[Pod]:
    return [pod for pod in pods_of(seen) if pod.phase == "Running" and pod.ip and not pod.terminating]
