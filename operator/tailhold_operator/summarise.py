"""The status of a pipeline, from what was seen and decided."""

from collections.abc import Iterable
from datetime import datetime

from tailhold_api import names
from tailhold_api.parts import SHORT
from tailhold_api.status import RevisionStatus, SnapshotStatus, Status
from tailhold_operator.audit import audit_heads
from tailhold_operator.conditions import set_conditions, stamp
from tailhold_operator.decide import Decision
from tailhold_operator.history import History
from tailhold_operator.kinds import Manifest
from tailhold_operator.observe import Pod, Seen, pods_of
from tailhold_operator.parsing import generation_of, read_status
from tailhold_operator.render.front import render_url
from tailhold_operator.render.identity import Identity, identity_of
from tailhold_operator.rolling import rollout_status, weight
from tailhold_operator.sides import answers, fetching, newest_phases, selector_text


def summarise(seen: Seen, decision: Decision, now: datetime) -> Status:
    """All that this look can tell. What it cannot is left as it was."""
    before = read_status(seen.pipeline)
    generation = generation_of(seen.pipeline)
    history = decision.history
    pods, identity = pods_of(seen), identity_of(seen.pipeline)
    serving = decision.serving or ""
    front = [pod for pod in pods if pod.pod_part == serving and serving and not pod.terminating]
    return Status(
        observed_generation=generation,
        conditions=set_conditions(before.conditions, decision.findings, generation, now),
        stable=_counted(history.served(serving) or _still(before.stable, serving, front), pods),
        candidate=_counted(_candidate(decision), pods),
        weight_percent=weight(seen, decision),
        rollout=rollout_status(before.rollout, decision, now),
        p99_milliseconds=seen.p99_milliseconds,
        replicas=len(front),
        ready_replicas=sum(map(answers, front)),
        replicas_text=_text(front, decision),
        selector=_selector(identity, serving),
        snapshot=_snapshot(decision),
        memory=decision.inspecting.sums if decision.inspecting else (),
        progress=(decision.building.progress if decision.building else None) or fetching(seen, pods),
        last_change=history.last_change,
        phases=newest_phases(seen, pods),
        capacity=seen.capacity,
        slo=decision.promises.status if decision.promises else None,
        url=render_url(identity, _template(seen, identity, serving)),
        audit=audit_heads(before.audit, seen, stamp(now)),
        ended=history.ended,
    )


def _template(seen: Seen, identity: Identity, serving: str) -> Manifest | None:
    deployment = seen.find("Deployment", identity.child(serving)) if serving else None
    return deployment["spec"]["template"] if deployment else None


def _still(before: RevisionStatus | None, serving: str, front: Iterable[Pod]) -> RevisionStatus | None:
    """What was said to serve, where its pods go on answering and the history that names it was lost."""
    same = before is not None and before.pod_digest[:SHORT] == serving
    return before if same and any(map(answers, front)) else None


def _candidate(decision: Decision) -> RevisionStatus | None:
    """The revision that is asked for, while another one or none serves and it was not given up."""
    if decision.target is None or decision.history.failed(decision.target.status.name):
        return None
    target = decision.target.status
    serving = decision.history.served(decision.serving or "")
    return None if serving and serving.name == target.name else target


def _counted(revision: RevisionStatus | None, pods: Iterable[Pod]) -> RevisionStatus | None:
    if revision is None:
        return None
    own = (pod for pod in pods if pod.pod_part == revision.pod_digest[:SHORT])
    return revision.model_copy(update={"ready_replicas": sum(map(answers, own))})


def _text(front: list[Pod], decision: Decision) -> str:
    wanted = decision.asked.spec.replicas if decision.asked else 0
    return f"{sum(map(answers, front))}/{wanted}"


def _selector(identity: Identity, serving: str) -> str:
    return selector_text(identity.selector(**{names.LABEL_POD_PART: serving})) if serving else ""


def _snapshot(decision: Decision) -> SnapshotStatus | None:
    if decision.building and decision.building.snapshot:
        return decision.building.snapshot
    return _newest(decision.history)


def _newest(history: History) -> SnapshotStatus | None:
    return history.snapshots[0] if history.snapshots else None


def status_body(status: Status) -> Manifest:
    """The status as it is applied: fields that say nothing are left out, so that they go away."""
    body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: value for name, value in body.items() if value not in ("", [], {})}
