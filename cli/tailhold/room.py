"""The room that a cluster has for a pod, from its nodes and pods as the API server lists them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tailhold.target import Target
from tailhold_api import names
from tailhold_api.placement import Placement
from tailhold_api.room import Amount, Node

_OVER = ("Succeeded", "Failed")
_MEBIBYTE = 1 << 20


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


def nodes_of(target: Target, placement: Placement, spared: Spared) -> tuple[Node, ...]:
    """Nodes that take pods and have the labels of `placement`. Raises CommandError."""
    nodes, pods = target.get("nodes"), target.get("pods", "--all-namespaces")
    return count_room(nodes or {}, pods or {}, placement, spared)


def count_room(
    nodes: Mapping[str, Any], pods: Mapping[str, Any], placement: Placement, spared: Spared = NOT_LIVE
) -> tuple[Node, ...]:
    """From the two lists. Pods that the edit ends anyway hold nothing."""
    resource, used = placement.gpu.resource_name, dict[str, Amount]()
    for pod in pods.get("items") or ():
        node = (pod.get("spec") or {}).get("nodeName")
        over = (pod.get("status") or {}).get("phase") in _OVER
        if node and not over and not spared.ends(pod):
            used[node] = _sum(used.get(node, Amount()), _asked(pod["spec"], resource))
    found = (each for each in nodes.get("items") or () if _takes_pods(each, placement))
    return tuple(_node(each, used.get(each["metadata"]["name"], Amount()), resource) for each in found)


def _node(node: Mapping[str, Any], used: Amount, resource: str) -> Node:
    whole = _amount((node.get("status") or {}).get("allocatable") or {}, resource)
    free = Amount(*(max(0, have - taken) for have, taken in zip(whole, used, strict=True)))
    return Node(free, whole)


def _asked(spec: Mapping[str, Any], resource: str) -> Amount:
    """What the scheduler counts for a pod: all containers, or the largest of those that run before them."""
    running = Amount()
    for each in spec.get("containers") or ():
        running = _sum(running, _container(each, resource))
    first = [_container(each, resource) for each in spec.get("initContainers") or ()]
    return Amount(*(max(each) for each in zip(running, *first, strict=True)))


def _container(container: Mapping[str, Any], resource: str) -> Amount:
    given = container.get("resources") or {}
    return _amount({**(given.get("limits") or {}), **(given.get("requests") or {})}, resource)


def _amount(quantities: Mapping[str, Any], resource: str) -> Amount:
    from kubernetes.utils import quantity

    parse: Callable[[Any], Decimal] = quantity.parse_quantity

    def read(name: str, factor: int = 1) -> int:
        return int(parse(quantities.get(name, 0)) * factor)

    return Amount(read(resource), read("cpu", 1000), read("memory") // _MEBIBYTE)


def _sum(one: Amount, other: Amount) -> Amount:
    return Amount(*(a + b for a, b in zip(one, other, strict=True)))


def _takes_pods(node: Mapping[str, Any], placement: Placement) -> bool:
    labels = node["metadata"].get("labels") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    fits = all(labels.get(key) == value for key, value in placement.node_labels.items())
    return ready and fits and not (node.get("spec") or {}).get("unschedulable")
