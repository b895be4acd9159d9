"""The truth table: what each condition says in each situation. A test drives the operator into every row."""

from enum import StrEnum
from typing import NamedTuple

from tailhold_api.conditions import ConditionType, Reason


class Kstatus(StrEnum):
    """What Flux, `helm --wait` (Helm 4) and other users of kstatus make of it."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"


class Said(NamedTuple):
    """A condition's status and reason."""

    holds: bool | None
    """None where it is Unknown."""
    reason: Reason


class Row(NamedTuple):
    """What is said in one situation."""

    kstatus: Kstatus
    ready: Reason | None
    """Why it is False; None where it is True."""
    accepted: Reason | None
    index_loaded: Reason | None
    model_loaded: Reason | None
    available: Reason | None
    rolled_out: Reason | None
    engine_matches: Reason | None = None
    """Said only where it is given here."""
    slo_met: Said | None = None
    """Said only where it is given here: where something is promised."""


COLUMNS = (
    ConditionType.READY,
    ConditionType.ACCEPTED,
    ConditionType.INDEX_LOADED,
    ConditionType.MODEL_LOADED,
    ConditionType.AVAILABLE,
    ConditionType.ROLLED_OUT,
)
_NOW, _SOON, _NEVER = Kstatus.CURRENT, Kstatus.IN_PROGRESS, Kstatus.FAILED
_BUILDS, _NO_INDEX, _NO_PODS = Reason.BUILDING_INDEX, Reason.WAITING_FOR_INDEX, Reason.NOT_READY
_LOADS, _NO_GPU, _ROLLS = Reason.LOADING_MODEL, Reason.INSUFFICIENT_GPU, Reason.ROLLING_OUT
_NO_NODE, _IMAGE, _NO_MODEL = Reason.UNSCHEDULABLE, Reason.WAITING_FOR_PODS, Reason.MODEL_NOT_FOUND
_NO_START, _LOOPS, _LATE = Reason.START_FAILED, Reason.CRASH_LOOP, Reason.DEADLINE_EXCEEDED
_BAD_INDEX, _EMPTY, _NO_BUILD = Reason.SNAPSHOT_REFUSED, Reason.EMPTY_INDEX, Reason.INDEX_BUILD_FAILED
_PUSHES, _DECLINED, _DRAINS = Reason.PUSHING_CONTENT, Reason.CONTENT_REFUSED, Reason.DRAINING
_QUOTA, _APPLY, _SPEC = Reason.POD_REFUSED, Reason.APPLY_REFUSED, Reason.INVALID_SPEC
_PAUSED, _NONE, _NAME, _PENDING = Reason.PAUSED, Reason.NO_REPLICAS, Reason.NAME_CONFLICT, Reason.PENDING
_DENIED, _UNHEARD = Reason.CREDENTIALS_REFUSED, Reason.SOURCE_UNREACHABLE
_WRONG, _FULL = Reason.CHECKSUM_MISMATCH, Reason.NO_SPACE
_LOOKS, _UNFIT = Reason.INSPECTING, Reason.DOES_NOT_FIT
_ASKS, _NO_ANSWER, _WEIGHS = Reason.PROBING, Reason.PROBE_FAILED, Reason.JUDGING
_UNKNOWN, _BROKEN, _STOPPED = Reason.NO_VERDICT, Reason.SLO_BROKEN, Reason.ABORTED
_NO_BACK = Reason.NO_WAY_BACK
_MET, _FEW = Said(True, Reason.OBJECTIVES_MET), Said(None, Reason.TOO_FEW_REQUESTS)
_SEE = Reason.WAITING_FOR_PODS  # nothing to load it: the failure stands elsewhere

SITUATIONS: dict[str, Row] = {
    "models and image are inspected": Row(_SOON, _LOOKS, _LOOKS, _LOOKS, _LOOKS, _NO_PODS, _LOOKS),
    "the inspection fails": Row(_NEVER, _NO_START, _NO_START, _NO_START, _NO_START, _NO_PODS, _NO_START),
    "the models do not fit": Row(_NEVER, _UNFIT, _UNFIT, _UNFIT, _UNFIT, _NO_PODS, _UNFIT),
    "the first index is built": Row(_SOON, _BUILDS, None, _BUILDS, _NO_INDEX, _NO_PODS, _NO_INDEX),
    "the index Job finds no node": Row(_SOON, _NO_NODE, None, _NO_NODE, _NO_INDEX, _NO_PODS, _NO_INDEX),
    "the first build failed": Row(_NEVER, _NO_BUILD, None, _NO_BUILD, _NO_INDEX, _NO_PODS, _NO_BUILD),
    "pods find no node": Row(_SOON, _NO_NODE, None, _NO_NODE, _NO_NODE, _NO_NODE, _NO_NODE),
    "pods find no GPU": Row(_SOON, _NO_GPU, None, _NO_GPU, _NO_GPU, _NO_GPU, _NO_GPU),
    "the image cannot be pulled": Row(_SOON, _IMAGE, None, _IMAGE, _IMAGE, _IMAGE, _IMAGE),
    "pods load": Row(_SOON, _LOADS, None, _LOADS, _LOADS, _LOADS, _LOADS),
    "the model is not there": Row(_NEVER, _NO_MODEL, None, _SEE, _NO_MODEL, _NO_MODEL, _NO_MODEL),
    "the hub or store refuses": Row(_NEVER, _DENIED, None, _SEE, _DENIED, _DENIED, _DENIED),
    "the hub or store does not answer": Row(_SOON, _UNHEARD, None, _UNHEARD, _UNHEARD, _UNHEARD, _UNHEARD),
    "a fetched file is not what it should be": Row(_NEVER, _WRONG, None, _SEE, _WRONG, _WRONG, _WRONG),
    "what is fetched has no room": Row(_NEVER, _FULL, None, _SEE, _FULL, _FULL, _FULL),
    "the server cannot start": Row(_NEVER, _NO_START, None, _SEE, _NO_START, _NO_START, _NO_START),
    "the snapshot was tampered with": Row(_NEVER, _BAD_INDEX, None, _BAD_INDEX, _SEE, _BAD_INDEX, _BAD_INDEX),
    "the server ends again and again": Row(_NEVER, _LOOPS, None, _SEE, _LOOPS, _LOOPS, _LOOPS),
    "it serves": Row(_NOW, None, None, None, None, None, None),
    "it serves, and the engine changed what it was asked": Row(
        _NOW, None, None, None, None, None, None, Reason.ENGINE_DIFFERS
    ),
    "it serves, and its objectives are kept": Row(
        _NOW, None, None, None, None, None, None, slo_met=Said(True, Reason.OBJECTIVES_MET)
    ),
    "it serves, and breaks an objective": Row(
        _NOW, None, None, None, None, None, None, slo_met=Said(False, Reason.OBJECTIVE_BROKEN)
    ),
    "it serves, and has too few requests to speak of objectives": Row(
        _NOW, None, None, None, None, None, None, slo_met=Said(None, Reason.TOO_FEW_REQUESTS)
    ),
    "it serves, and its counters cannot be read": Row(
        _NOW, None, None, None, None, None, None, slo_met=Said(None, Reason.METRICS_UNAVAILABLE)
    ),
    "it serves, and its pods begin to fail": Row(_NEVER, _LOOPS, None, _SEE, _LOOPS, _LOOPS, _LOOPS),
    "an edit: it is inspected, the old pods serve": Row(_SOON, _LOOKS, _LOOKS, _SEE, _LOOKS, None, _LOOKS),
    "an edit: it does not fit, the old pods serve": Row(_NEVER, _UNFIT, _UNFIT, _SEE, _UNFIT, None, _UNFIT),
    "an edit: new pods load, the old ones serve": Row(_SOON, _LOADS, None, _LOADS, _LOADS, None, _ROLLS),
    "an edit: no GPU beside the old pods": Row(_SOON, _NO_GPU, None, _NO_GPU, _NO_GPU, None, _ROLLS),
    "an edit: the old pods made room": Row(_SOON, _LOADS, None, _LOADS, _LOADS, _DRAINS, _DRAINS),
    "an edit: the new pods fail, the old ones serve": Row(_NEVER, _NO_MODEL, None, _SEE, _NO_MODEL, None, _NO_MODEL),
    "an edit: not ready in time, the old pods serve": Row(_NEVER, _LATE, None, _SEE, _LATE, None, _LATE),
    "an edit: pods are not admitted, the old ones serve": Row(_NEVER, _QUOTA, None, _SEE, _QUOTA, None, _QUOTA),
    "an edit: an object is refused, the old pods serve": Row(_NEVER, _APPLY, None, _ROLLS, _ROLLS, None, _APPLY),
    "an edit: its index is built, the old one serves": Row(_SOON, _BUILDS, None, _BUILDS, _NO_INDEX, None, _NO_INDEX),
    "an edit: its index is empty, the old one serves": Row(_NEVER, _EMPTY, None, _EMPTY, _NO_INDEX, None, _EMPTY),
    "an edit: content is pushed": Row(_SOON, _PUSHES, None, None, None, None, _PUSHES),
    "an edit: content was refused, the old one serves": Row(_NEVER, _DECLINED, None, None, None, None, _DECLINED),
    "judged: the candidate is asked questions": Row(_SOON, _ASKS, None, None, None, None, _ASKS, slo_met=_FEW),
    "judged: the candidate does not answer them": Row(
        _NEVER, _NO_ANSWER, None, _SEE, _NO_ANSWER, None, _NO_ANSWER, slo_met=_FEW
    ),
    "judged: the candidate has a share of the traffic": Row(
        _SOON, _WEIGHS, None, None, None, None, _WEIGHS, slo_met=_MET
    ),
    "judged: there was no verdict in time, and it waits on": Row(
        _SOON, _UNKNOWN, None, None, None, None, _UNKNOWN, slo_met=_FEW
    ),
    "judged: there was no verdict in time, and it is taken back": Row(
        _NEVER, _UNKNOWN, None, _SEE, _UNKNOWN, None, _UNKNOWN, slo_met=_FEW
    ),
    "judged: the candidate broke an objective": Row(_NEVER, _BROKEN, None, _SEE, _BROKEN, None, _BROKEN, slo_met=_MET),
    "judged: new content broke an objective": Row(_NEVER, _BROKEN, None, None, None, None, _BROKEN, slo_met=_MET),
    "judged: the candidate serves alone until it is proved": Row(
        _SOON, _WEIGHS, None, None, None, None, _WEIGHS, slo_met=_FEW
    ),
    "judged: somebody took the candidate back": Row(
        _NEVER, _STOPPED, None, _SEE, _STOPPED, None, _STOPPED, slo_met=_MET
    ),
    "judged: it could not be taken back, so it is not started": Row(
        _NEVER, _NO_BACK, None, _SEE, _NO_BACK, None, _NO_BACK, slo_met=_FEW
    ),
    "an edit that is not understood, the old one serves": Row(_NEVER, _SPEC, _SPEC, None, None, None, _SPEC),
    "not understood, and nothing serves": Row(_NEVER, _SPEC, _SPEC, _SPEC, _SPEC, _SPEC, _SPEC),
    "paused, and an edit waits": Row(_SOON, _PAUSED, None, _PAUSED, _PAUSED, None, _PAUSED),
    "paused from the first": Row(_SOON, _PAUSED, _PAUSED, _PAUSED, _PAUSED, _NO_PODS, _PAUSED),
    "paused, and nothing waits": Row(_NOW, None, None, None, None, None, None),
    "no replicas are asked for": Row(_NOW, None, None, _NONE, _NONE, _NONE, None),
    "no replicas from the first": Row(_NOW, None, None, _NONE, _NONE, _NONE, None),
    "a name is taken by somebody else": Row(_NEVER, _NAME, _NAME, _LOOKS, _LOOKS, _NO_PODS, _LOOKS),
    "a deleted namesake is still leaving": Row(_SOON, _LOOKS, _LOOKS, _LOOKS, _LOOKS, _NO_PODS, _PENDING),
}
"""By what the pipeline is in; the text names the row in the tests too. Before its first look the operator has said
nothing: `status.observedGeneration` is then -1, or that of an older spec, and kstatus is InProgress."""


def conditions(row: Row) -> dict[ConditionType, Said]:
    """Every condition that is there; no other one is."""
    cells = dict(zip(COLUMNS, row[1:7], strict=True))
    told = {kind: Said(reason is None, reason or Reason.RECONCILED) for kind, reason in cells.items()}
    if row.ready is None and row.available is Reason.NO_REPLICAS:
        told[ConditionType.READY] = Said(True, Reason.NO_REPLICAS)
    if row.engine_matches:
        told[ConditionType.ENGINE_MATCHES_SPEC] = Said(False, row.engine_matches)
    if row.slo_met:
        told[ConditionType.SLO_MET] = row.slo_met
    if row.ready:
        stuck = row.kstatus is Kstatus.FAILED
        told[ConditionType.STALLED if stuck else ConditionType.RECONCILING] = Said(True, row.ready)
    return told
