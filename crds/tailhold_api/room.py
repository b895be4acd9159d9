"""What a pod takes of a node, and what nodes have."""

from collections.abc import Sequence
from typing import NamedTuple

from tailhold_api.placement import Placement


class Amount(NamedTuple):
    """Of what the scheduler counts."""

    gpus: int = 0
    millicores: int = 0
    mebibytes: int = 0


class Node(NamedTuple):
    """A node that pods may go to."""

    free: Amount
    """What no pod has asked for."""
    whole: Amount
    """What it has for pods when it is empty."""


def asked_by(placement: Placement) -> Amount:
    """What one pod asks the scheduler for."""
    return Amount(placement.gpu.count, placement.cpu.requested_millicores, placement.memory_mebibytes)


def fitting(each: Amount, nodes: Sequence[Node]) -> int:
    """How many such pods find room beside those that run; a pod is on one node."""
    return sum(_times(each, node.free) for node in nodes)


def could_fit(each: Amount, nodes: Sequence[Node]) -> bool:
    """Whether any of the nodes could hold such a pod if nothing else ran there."""
    return any(_times(each, node.whole) for node in nodes)


def _times(each: Amount, room: Amount) -> int:
    return max(0, min(have // want for have, want in zip(room, each, strict=True) if want))
