"""`tailhold plan`: what an edit will do, said before it is applied."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tailhold.manifest import Manifest, read_manifest
from tailhold.room import Spared, nodes_of
from tailhold.target import CommandError, Target
from tailhold_api import names
from tailhold_api.codec import load_lenient
from tailhold_api.fields import FieldClass
from tailhold_api.fit import misfits
from tailhold_api.forecast import Forecast, Outage, forecast
from tailhold_api.inspection import Inspection, models_digest
from tailhold_api.memory import MemorySum, memory_sums
from tailhold_api.memory import rendered as memory_lines
from tailhold_api.parts import SHORT
from tailhold_api.rollout import RolloutStrategy
from tailhold_api.room import Node
from tailhold_api.spec import Spec
from tailhold_api.stand_in import is_stand_in
from tailhold_api.status import Status

EFFECTS = {
    FieldClass.RESTART: "makes new pods",
    FieldClass.RELOAD: "builds an index, loaded by the running pods",
    FieldClass.LIVE: "reaches the running pods",
    FieldClass.POLICY: "acts in the operator alone",
}


def plan(new: Path, against: Path | None, target: Target | None) -> dict[str, Any]:
    """The forecast as JSON. The old spec is the file `against`, or else the live object of `target`.

    Raises ManifestError and CommandError.
    """
    wanted = read_manifest(new)
    if against:
        before = read_manifest(against)
        return described(wanted, before.spec, None, Status(), "", rebuild=wanted.rebuild != before.rebuild)
    if target is None:
        return described(wanted, None, None, Status(), "")
    live = target.get(names.PLURAL, wanted.name, *_namespaced(wanted))
    old = load_lenient(Spec, live["spec"]) if live else None
    status = load_lenient(Status, live.get("status") or {}) if live else Status()
    marks = ((live or {}).get("metadata") or {}).get("annotations") or {}
    rebuild = wanted.rebuild != marks.get(names.ANNOTATION_REBUILD, "")
    found = _inspected(target, wanted)
    try:
        nodes = nodes_of(target, wanted.spec.placement, _spared(live or {}, status))
        return described(wanted, old, nodes, status, "", live=True, rebuild=rebuild, found=found)
    except CommandError as error:
        return described(wanted, old, None, status, str(error), live=True, rebuild=rebuild, found=found)


def described(
    wanted: Manifest,
    old: Spec | None,
    nodes: Sequence[Node] | None,
    status: Status,
    unknown: str,
    *,
    live: bool = False,
    rebuild: bool = False,
    found: Inspection | None = None,
) -> dict[str, Any]:
    """A forecast with all that is said about it; `unknown` is why the nodes are not known.

    Of a `live` object the status says whether anything serves; of a file it is taken that it does. `found` is what an
    inspection of the same models gave.
    """
    serves = not live or status.stable is not None
    told = forecast(wanted.name, old, wanted.spec, nodes, rebuild=rebuild, serves=serves)
    chunks = status.snapshot.chunks if status.snapshot else None
    return {
        "pipeline": wanted.name,
        "isNew": old is None,
        "changes": [
            {"field": each.path, "old": _plain(each.old), "new": _plain(each.new), "class": each.field_class.value}
            for each in told.changes
        ],
        "newPods": told.new_pods,
        "newIndex": told.new_index,
        "newContent": told.new_content,
        "gpus": {
            "resource": wanted.spec.placement.gpu.resource_name,
            "eachPod": wanted.spec.placement.gpu.count,
            "forAll": told.gpus_for_all,
            "besideTheOld": told.gpus_beside,
            "free": sum(each.free.gpus for each in nodes) if nodes is not None else None,
            "unknown": unknown,
        },
        "refused": [each.message for each in misfits(wanted.spec, found, chunks)] if found else [],
        "memory": [_plain(each) for each in memory_sums(wanted.spec, found, chunks)] if found else None,
        "memoryMebibytesOfAllPods": wanted.spec.replicas * wanted.spec.placement.memory_mebibytes,
        "strategy": told.strategy.value if told.strategy else None,
        "outage": told.outage.value if told.outage else None,
        "podsThatFitBeside": told.fitting,
        "noNodeCouldHoldOne": told.unfit,
        "lastStartSeconds": _last_start_seconds(status),
        "summary": list(_summary(told, old is None, status)),
    }


def rendered(said: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    for each in said["changes"]:
        effect = EFFECTS[FieldClass(each["class"])]
        yield f"  {each['field']}: {json.dumps(each['old'])} -> {json.dumps(each['new'])}   [{each['class']}] {effect}"
    yield from (f"refused when it is applied, and what serves goes on: {each}" for each in said["refused"])
    if said["refused"]:
        yield "put right, it would do this:"
    yield from said["summary"]
    yield from _gpus(said["gpus"])
    yield f"memory that all pods ask for: {said['memoryMebibytesOfAllPods']:,} MiB"
    if said["memory"] is None:
        yield "what a pod takes is added up once its models are inspected: by `tailhold inspect`, or when applied"
    for each in said["memory"] or ():
        yield from memory_lines(MemorySum.model_validate(each))


def _gpus(said: Mapping[str, Any]) -> Iterator[str]:
    """What is asked of Kubernetes, which need not be what this machine has."""
    if not (said["forAll"] or said["besideTheOld"]):
        return
    free = said["free"] if said["free"] is not None else f"not known {said['unknown']}".strip()
    beside = f", {said['besideTheOld']} more while old pods run beside new ones" if said["besideTheOld"] else ""
    each = f"`placement.gpu.count` {said['eachPod']} of {said['resource']} for each"
    yield f"GPUs that all pods ask Kubernetes for: {said['forAll']} ({each}){beside}; free on its nodes: {free}"
    yield "  (those of a cluster that `tailhold up` started are stand-ins: its pods compute on the CPU)"


def _summary(found: Forecast, is_new: bool, status: Status) -> Iterator[str]:
    if is_new:
        yield "there is no such pipeline yet: an index is built, then pods are started"
        return
    if not (found.changes or found.new_index or found.new_pods):
        yield "nothing changes"
        return
    if found.new_index:
        yield "an index is built first; what serves goes on serving"
    yield _pods(found, status)
    yield "to undo it, apply the old manifest again: its revision is kept (`rollout.history`)"


def _last_start_seconds(status: Status) -> int | None:
    """Until the last step was done: they run side by side."""
    ends = (phase.began_milliseconds + phase.milliseconds for phase in status.phases)
    last = max(ends, default=None)
    return None if last is None else round(last / 1000)


def _pods(found: Forecast, status: Status) -> str:
    if not found.new_pods:
        return "no pod is restarted"
    if found.unfit and found.strategy is not RolloutStrategy.DRAIN_FIRST:
        return "new pods, and no node could hold one even if nothing else ran there: they wait, what serves goes on"
    if not found.strategy and found.outage is Outage.NONE:
        return "new pods; none serves yet"
    strategy = f"new pods, strategy {found.strategy.value}: " if found.strategy else "new pods: "
    seconds = _last_start_seconds(status)
    last = f"; the last start took {seconds} s" if seconds is not None else ""
    match found.outage:
        case Outage.NONE:
            return f"{strategy}no outage, the old ones serve until all new ones are ready"
        case Outage.FEWER_PODS:
            return f"{strategy}no outage, fewer pods serve: only {found.fitting} new ones fit beside the old{last}"
        case Outage.UNTIL_READY:
            return f"{strategy}an outage from the stop of the old pods until the new ones are ready{last}"
        case None:
            return f"{strategy}no outage where they have room beside the old ones, else one until they are ready{last}"


def _inspected(target: Target, wanted: Manifest) -> Inspection | None:
    """What the operator remembers of the same models; arguments that are not asked for any more do not matter."""
    name = names.child_name(wanted.name, "history")
    try:
        kept = target.get("configmap", name, *_namespaced(wanted)) or {}
        listed = json.loads((kept.get("data") or {}).get("history.json", "{}")).get("inspections", [])
        inspections = [load_lenient(Inspection, each) for each in listed]
    except (CommandError, ValueError):
        return None
    generator, embedder = wanted.spec.generator.model, wanted.spec.embedder.model
    models = models_digest(generator, embedder, stand_in=is_stand_in(wanted.spec.pod.env))
    same = (each for each in inspections if each.models == models)
    return next((each.model_copy(update={"unknown_arguments": _still(each, wanted.spec)}) for each in same), None)


def _still(found: Inspection, spec: Spec) -> tuple[str, ...]:
    return tuple(name for name in found.unknown_arguments if name in spec.engine.extra_args)


def _spared(live: Mapping[str, Any], status: Status) -> Spared:
    stable = status.stable.pod_digest[:SHORT] if status.stable else ""
    return Spared(str((live.get("metadata") or {}).get("uid", "")), stable)


def _plain(value: Any) -> Any:
    """As it stands on the wire."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _namespaced(wanted: Manifest) -> tuple[str, ...]:
    return ("-n", wanted.namespace) if wanted.namespace else ()
