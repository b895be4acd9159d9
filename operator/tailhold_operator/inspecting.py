"""Whether models, image, card and memory were found to be what a spec needs, and what its inspection Job needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from tailhold_api import codec
from tailhold_api.conditions import Reason
from tailhold_api.fit import misfits
from tailhold_api.inspection import Inspection
from tailhold_api.memory import MemorySum, memory_sums, rendered
from tailhold_api.parts import SHORT
from tailhold_api.spec import Spec
from tailhold_api.stand_in import disclosed
from tailhold_operator.findings import FINE, Finding, advised, reason_of, stuck, waiting
from tailhold_operator.observe import HOPELESS, Ending, Job, Pod


@dataclass(frozen=True)
class Inspecting:
    """Where the inspection of a spec stands."""

    finding: Finding
    """What `Accepted` says."""
    found: Inspection | None = None
    needs_job: bool = False
    discard: bool = False
    """The Job ended and what it said is lost: it has to run again."""
    sums: tuple[MemorySum, ...] = ()


def assess(digest: str, known: Inspection | None, jobs: Sequence[Job], pods: Sequence[Pod]) -> Inspecting:
    """Where the look at an InspectionPart stands, by its whole digest; what was found is not judged yet."""
    if known:
        return Inspecting(FINE, known)
    job = next((each for each in jobs if each.digest == digest[:SHORT]), None)
    own = sorted((pod for pod in pods if pod.inspection == digest[:SHORT]), key=lambda pod: pod.created)
    if job is None:
        return Inspecting(waiting(Reason.INSPECTING, "the inspection Job is being created"), needs_job=True)
    if job.complete or job.failed:
        return _result(digest, own)
    if not own and job.warning:
        return Inspecting(waiting(Reason.POD_REFUSED, f"the inspection Job gets no pod: {job.warning}"))
    return Inspecting(_running(own))


def judged(inspecting: Inspecting, spec: Spec, chunks: int | None) -> Inspecting:
    """With what was found held against the spec; `chunks` are the passages in the index, where it is built."""
    found = inspecting.found
    if found is None:
        return inspecting
    sums = memory_sums(spec, found, chunks)
    faults = misfits(spec, found, chunks)
    if faults:
        text = "\n".join(each.message for each in faults)
        return replace(inspecting, finding=stuck(faults[0].reason, text), sums=sums)
    return replace(inspecting, finding=replace(FINE, message=_told(spec, found, sums)), sums=sums)


def proven(inspecting: Inspecting, spec: Spec, chunks: int | None) -> Inspecting:
    """Of a revision that has served: that it runs was seen, whatever a sum says, and nothing has to be looked at."""
    found = inspecting.found
    sums = memory_sums(spec, found, chunks) if found else ()
    message = _told(spec, found, sums) if found else ""
    return Inspecting(replace(FINE, message=message), found, sums=sums)


def _told(spec: Spec, found: Inspection, sums: Sequence[MemorySum]) -> str:
    lines = [line for each in sums for line in rendered(each)]
    return "\n".join((*lines, *([found.doubt] if found.doubt else []), *disclosed(spec.pod.env)))


def _result(digest: str, pods: Sequence[Pod]) -> Inspecting:
    for pod in reversed(pods):
        found = _read(pod.ending) if pod.ending and pod.ending.exit_code == 0 else None
        if found and found.digest == digest:
            return Inspecting(FINE, found)
    message = "the inspection Job ended and its result is lost; it runs again"
    return Inspecting(waiting(Reason.INSPECTING, message), discard=True)


def _read(ending: Ending) -> Inspection | None:
    try:
        return codec.load_lenient(Inspection, dict(ending.told))
    except ValidationError:
        return None


def _running(pods: Sequence[Pod]) -> Finding:
    """What the newest pod says, or what holds it up."""
    if not pods:
        return waiting(Reason.INSPECTING, "the inspection Job starts")
    pod = pods[-1]
    if pod.ending and pod.ending.exit_code:
        return _failed(pod.ending)
    if pod.held_by:
        reason = Reason.UNSCHEDULABLE if pod.unschedulable else Reason.WAITING_FOR_PODS
        return waiting(reason, f"inspection Job: {advised(pod.held_by)}")
    return waiting(Reason.INSPECTING, "models and image are looked at")


def _failed(ending: Ending) -> Finding:
    text = ending.message or f"the inspection ended with exit code {ending.exit_code}: {ending.reason}"
    again = f"{text}; it is looked at again by itself, at most five minutes apart"
    reason = reason_of(ending.reason, Reason.INSPECTING)
    return stuck(reason, again) if ending.exit_code == HOPELESS else waiting(reason, again)
