"""`tailhold plan`: what an edit will do, said before it is applied."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailhold.manifest import Manifest, read_manifest
from tailhold.target import CommandError, Target
from tailhold_api import names
from tailhold_api.codec import load_lenient
from tailhold_api.fields import FieldClass
from tailhold_api.forecast import Forecast, Outage, forecast
from tailhold_api.parts import SHORT
from tailhold_api.placement import Placement
from tailhold_api.spec import Spec
from tailhold_api.status import Status

EFFECTS = {
    FieldClass.RESTART: "makes new pods",
    FieldClass.RELOAD: "builds an index, loaded by the running pods",
    FieldClass.LIVE: "reaches the running pods",
    FieldClass.POLICY: "acts in the operator alone",
}


@dataclass(frozen=True)
class Spared:
    """A live pipeline, and what of it an edit does not end."""

    uid: str
    stable: str
    """Short digest of the pod part that serves; a candidate beside it makes way for the next one."""

    def ends(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod is of a candidate that the edit supersedes."""
        labels = pod.get("metadata", {}).get("labels") or {}
        ours = bool(self.uid) and labels.get(names.LABEL_PIPELINE_UID) == self.uid
        return ours and labels.get(names.LABEL_POD_PART, self.stable) != self.stable


NOT_LIVE = Spared("", "")


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
    try:
        spared = _spared(live or {}, status)
        free = free_gpus(target, wanted.spec.placement, spared)
        return described(wanted, old, free, status, "", live=True, rebuild=rebuild)
    except CommandError as error:
        return described(wanted, old, None, status, str(error), live=True, rebuild=rebuild)


def described(
    wanted: Manifest,
    old: Spec | None,
    free: Sequence[int] | None,
    status: Status,
    unknown: str,
    *,
    live: bool = False,
    rebuild: bool = False,
) -> dict[str, Any]:
    """A forecast with all that is said about it; `unknown` is why free GPUs are not known.

    Of a `live` object the status says whether anything serves; of a file it is taken that it does.
    """
    found = forecast(wanted.name, old, wanted.spec, free, rebuild=rebuild, serves=not live or status.stable is not None)
    return {
        "pipeline": wanted.name,
        "isNew": old is None,
        "changes": [
            {"field": each.path, "old": _plain(each.old), "new": _plain(each.new), "class": each.field_class.value}
            for each in found.changes
        ],
        "newPods": found.new_pods,
        "newIndex": found.new_index,
        "newContent": found.new_content,
        "gpus": {
            "forAll": found.gpus_for_all,
            "besideTheOld": found.gpus_beside,
            "free": sum(free) if free is not None else None,
            "unknown": unknown,
        },
        "memoryMebibytesOfAllPods": wanted.spec.replicas * wanted.spec.placement.memory_mebibytes,
        "strategy": found.strategy.value if found.strategy else None,
        "outage": found.outage.value if found.outage else None,
        "lastStartSeconds": round(sum(status.phases.values()) / 1000) if status.phases else None,
        "summary": list(_summary(found, old is None, status)),
    }


def rendered(said: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    for each in said["changes"]:
        effect = EFFECTS[FieldClass(each["class"])]
        yield f"  {each['field']}: {json.dumps(each['old'])} -> {json.dumps(each['new'])}   [{each['class']}] {effect}"
    yield from said["summary"]
    gpus = said["gpus"]
    if gpus["forAll"] or gpus["besideTheOld"]:
        free = gpus["free"] if gpus["free"] is not None else f"not known {gpus['unknown']}".strip()
        yield f"GPUs: {gpus['forAll']} in the end, {gpus['besideTheOld']} more beside the old pods; free: {free}"
    yield f"memory that all pods ask for: {said['memoryMebibytesOfAllPods']} MiB"


def free_gpus(target: Target, placement: Placement, spared: Spared) -> tuple[int, ...] | None:
    """Free GPUs of each node that takes pods and has the labels of `placement`. Raises CommandError."""
    if not placement.gpu.count:
        return None
    nodes, pods = target.get("nodes"), target.get("pods", "--all-namespaces")
    return count_free(nodes or {}, pods or {}, placement, spared)


def count_free(
    nodes: Mapping[str, Any], pods: Mapping[str, Any], placement: Placement, spared: Spared = NOT_LIVE
) -> tuple[int, ...]:
    """From the lists as the API server gives them. Pods that the edit ends anyway hold nothing."""
    resource, used = placement.gpu.resource_name, dict[str, int]()
    for pod in pods.get("items") or ():
        node = (pod.get("spec") or {}).get("nodeName")
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if node and not over and not spared.ends(pod):
            used[node] = used.get(node, 0) + _asked(pod, resource)
    fitting = [each for each in nodes.get("items") or () if _takes_pods(each, placement)]
    return tuple(max(0, _allocatable(each, resource) - used.get(each["metadata"]["name"], 0)) for each in fitting)


def _asked(pod: Mapping[str, Any], resource: str) -> int:
    containers = pod["spec"].get("containers") or ()
    return sum(int(((each.get("resources") or {}).get("limits") or {}).get(resource, 0)) for each in containers)


def _allocatable(node: Mapping[str, Any], resource: str) -> int:
    return int(((node.get("status") or {}).get("allocatable") or {}).get(resource, 0))


def _takes_pods(node: Mapping[str, Any], placement: Placement) -> bool:
    labels = node["metadata"].get("labels") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    fits = all(labels.get(key) == value for key, value in placement.node_labels.items())
    return ready and fits and not (node.get("spec") or {}).get("unschedulable")


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


def _pods(found: Forecast, status: Status) -> str:
    if not found.new_pods:
        return "no pod is restarted"
    if not found.strategy and found.outage is Outage.NONE:
        return "new pods; none serves yet"
    strategy = f"new pods, strategy {found.strategy.value}: " if found.strategy else "new pods: "
    last = f"; the last start took {round(sum(status.phases.values()) / 1000)} s" if status.phases else ""
    match found.outage:
        case Outage.NONE:
            return f"{strategy}no outage, the old ones serve until all new ones are ready"
        case Outage.FEWER_PODS:
            return f"{strategy}no outage, fewer pods serve: only {found.fitting} new ones fit beside the old{last}"
        case Outage.UNTIL_READY:
            return f"{strategy}an outage from the stop of the old pods until the new ones are ready{last}"
        case None:
            return f"{strategy}no outage where they have room beside the old ones, else one until they are ready{last}"


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
