"""Events: few, and only of what a look at two statuses shows to have happened."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from tailhold_api import names
from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.status import Condition, Status
from tailhold_operator.kinds import KINDS, Manifest

_LONGEST = 1000


@dataclass(frozen=True)
class Happening:
    """Something that people want to be told of once."""

    reason: str
    message: str
    about: str
    """What makes it another one than the last of the same reason."""
    warns: bool = False


def happenings(before: Status, after: Status) -> tuple[Happening, ...]:
    """What changed from one status to the next."""
    return (
        *_built(before, after),
        *_drained(before, after),
        *_served(before, after),
        *_failed(before, after),
        *_lost(before, after),
        *_promised(before, after),
    )


def _built(before: Status, after: Status) -> Iterator[Happening]:
    new = after.snapshot
    if new and (before.snapshot is None or before.snapshot.build != new.build):
        counts = f"{new.chunks} chunks of {new.documents} documents, {new.failed_documents} could not be read"
        yield Happening("IndexBuilt", counts, new.build)


def _drained(before: Status, after: Status) -> Iterator[Happening]:
    now, then = _find(after, ConditionType.ROLLED_OUT), _find(before, ConditionType.ROLLED_OUT)
    if now and now.reason == Reason.DRAINING and (then is None or then.reason != now.reason):
        about = f"{after.candidate.name if after.candidate else ''}{now.observed_generation}"
        yield Happening("Draining", f"serving pods make room: {now.message}", about, warns=True)


def _served(before: Status, after: Status) -> Iterator[Happening]:
    old, new = before.stable, after.stable
    if new is None or (old and old.name == new.name):
        return
    same_pods = old is not None and old.pod_digest == new.pod_digest
    reason = "ContentApplied" if same_pods else "RolledOut"
    yield Happening(reason, f"revision {new.name} serves", f"{new.name}{after.observed_generation}")


def _failed(before: Status, after: Status) -> Iterator[Happening]:
    stalled = _find(after, ConditionType.STALLED)
    if stalled is None or stalled.reason == Reason.PAUSED:
        return
    for kind, reason in _WARNINGS.items():
        now, then = _find(after, kind), _find(before, kind)
        if now is None or now.status != "False" or now.reason != stalled.reason:
            continue  # it holds, or waits for what fails elsewhere
        if then is None or (then.status, then.reason) != (now.status, now.reason):
            yield Happening(reason, f"{now.reason}: {now.message}", f"{now.reason}{now.observed_generation}", True)
            return


def _lost(before: Status, after: Status) -> Iterator[Happening]:
    """That nothing answers any more, unless it was asked for; and that it does again."""
    now, then = _find(after, ConditionType.AVAILABLE), _find(before, ConditionType.AVAILABLE)
    if now is None or then is None or now.status == then.status:
        return
    if now.status == "True" and before.stable:
        yield Happening("Available", "questions are answered again", now.last_transition_time)
    if now.status == "False" and now.reason != Reason.NO_REPLICAS:
        yield Happening("Unavailable", f"{now.reason}: {now.message}", now.last_transition_time, warns=True)


def _promised(before: Status, after: Status) -> Iterator[Happening]:
    """That a promise is broken, and that it is kept again."""
    now, then = _find(after, ConditionType.SLO_MET), _find(before, ConditionType.SLO_MET)
    if now is None or (then and now.status == then.status):
        return
    if now.status == "False":
        yield Happening("ObjectiveBroken", now.message, now.last_transition_time, warns=True)
    if now.status == "True" and then and before.slo and any(each.broken for each in before.slo.objectives):
        yield Happening("ObjectivesMet", now.message, now.last_transition_time)


_WARNINGS = {
    ConditionType.ACCEPTED: "SpecRefused",
    ConditionType.INDEX_LOADED: "IndexFailed",
    ConditionType.ROLLED_OUT: "RevisionFailed",
}


def _find(status: Status, kind: ConditionType) -> Condition | None:
    return next((each for each in status.conditions if each.type == kind), None)


def render_event(pipeline: Manifest, happening: Happening, now: str) -> Manifest:
    """An Event whose name is made of what it tells: told again, it is there already."""
    metadata = pipeline["metadata"]
    about = f"{metadata['uid']}{happening.reason}{happening.about}"
    suffix = hashlib.sha256(about.encode()).hexdigest()[:16]
    return {
        "apiVersion": KINDS["Event"].api_version,
        "kind": "Event",
        "metadata": {
            "name": f"{names.child_name(metadata['name'])}.{suffix}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": happening.reason,
        "message": happening.message[:_LONGEST],
        "type": "Warning" if happening.warns else "Normal",
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "reportingInstance": names.FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
