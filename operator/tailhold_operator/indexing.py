"""Whether the index of a spec is built, and what its Job needs."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from tailhold_api import codec
from tailhold_api.conditions import Reason
from tailhold_api.parts import SHORT
from tailhold_api.status import Progress, SnapshotStatus
from tailhold_operator.findings import FINE, Finding, advised, reason_of, stuck, waiting
from tailhold_operator.observe import Job, Pod
from tailhold_operator.progress import coarse, read_progress, words

KEPT_JOBS = 2
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Building:
    """Where the build of a spec's index stands."""

    finding: Finding
    snapshot: SnapshotStatus | None = None
    needs_job: bool = False
    discard: bool = False
    """The Job ended and what it said is lost: it has to run again."""
    progress: Progress | None = None


def pinned(digest: str) -> Building:
    """A snapshot that was built elsewhere: pods look whether it is there and what it says it is."""
    return Building(FINE, SnapshotStatus(digest=digest))


def assess(
    build: str,
    known: SnapshotStatus | None,
    jobs: Sequence[Job],
    pods: Sequence[Pod],
    progress: Mapping[str, Any] | None,
) -> Building:
    """Judge the build of a build part by its whole digest."""
    if known:
        return Building(FINE, known)
    job = next((each for each in jobs if each.digest == build[:SHORT]), None)
    own = sorted((pod for pod in pods if pod.build == build[:SHORT]), key=lambda pod: pod.created)
    if job is None:
        return Building(waiting(Reason.BUILDING_INDEX, "the index Job is being created"), needs_job=True)
    if job.failed:
        return Building(_failed(job, own))
    if job.complete:
        return _result(build, own)
    if not own and job.warning:
        return Building(waiting(Reason.POD_REFUSED, f"the index Job gets no pod: {job.warning}"))
    told = read_progress(progress)
    return _running(own, coarse(told) if told else None)


def surplus(jobs: Sequence[Job], builds: Collection[str]) -> frozenset[str]:
    """Builds whose Jobs may go: those that run for nobody, and of the ended all but the newest two with ours."""
    others = sorted((job for job in jobs if job.digest not in builds), key=lambda job: job.created, reverse=True)
    ended = [job for job in others if job.complete or job.failed]
    asked = len(jobs) - len(others)
    running = {job.digest for job in others} - {job.digest for job in ended}
    return frozenset(running | {job.digest for job in ended[max(0, KEPT_JOBS - asked) :]})


def _result(build: str, pods: Sequence[Pod]) -> Building:
    for pod in reversed(pods):
        told = pod.ending.told if pod.ending and pod.ending.exit_code == 0 else {}
        if "snapshot" in told:
            return _told(build, told)
    message = "the index Job ended and its result is lost; it runs again"
    return Building(waiting(Reason.BUILDING_INDEX, message), discard=True)


def _told(build: str, told: Mapping[str, Any]) -> Building:
    """A result is a pod's word, and a pod of another image may say anything."""
    said = {"digest": told["snapshot"], "build": build}
    said |= {name: told[name] for name in ("documents", "failedDocuments", "chunks") if name in told}
    try:
        snapshot = codec.load_lenient(SnapshotStatus, said)
    except ValidationError:
        snapshot = None
    if snapshot is None or not _DIGEST.fullmatch(snapshot.digest):
        return Building(stuck(Reason.INDEX_BUILD_FAILED, f"the index Job's result is none: {str(dict(told))[:500]}"))
    return Building(FINE, snapshot)


def _failed(job: Job, pods: Sequence[Pod]) -> Finding:
    ended = [pod.ending for pod in pods if pod.ending]
    if not ended:
        return stuck(Reason.INDEX_BUILD_FAILED, job.message or "the index Job failed")
    last = ended[-1]
    text = last.message or f"the index Job ended with exit code {last.exit_code}: {last.reason}"
    return stuck(reason_of(last.reason, Reason.INDEX_BUILD_FAILED), text)


def _running(pods: Sequence[Pod], progress: Progress | None) -> Building:
    waits = [pod for pod in pods if pod.held_by]
    if waits:
        reason = Reason.UNSCHEDULABLE if waits[-1].unschedulable else Reason.WAITING_FOR_PODS
        return Building(waiting(reason, f"index Job: {advised(waits[-1].held_by)}"))
    return Building(waiting(Reason.BUILDING_INDEX, _how_far(pods, progress)), progress=progress)


def _how_far(pods: Sequence[Pod], progress: Progress | None) -> str:
    failures = sum(1 for pod in pods if pod.phase == "Failed")
    again = f"; attempt {failures + 1}, the last one ended: {_last_words(pods)}" if failures else ""
    if progress is None:
        return f"the index Job runs{again}"
    return f"{words(progress)}{again}"


def _last_words(pods: Sequence[Pod]) -> str:
    words = [pod.ending.message or pod.ending.reason for pod in pods if pod.ending and pod.ending.exit_code]
    return words[-1] if words else "unknown"
