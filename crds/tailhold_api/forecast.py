"""What an edit of a spec will do, before it is applied. The operator acts on the same parts, digests and classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailhold_api.codec import digest
from tailhold_api.parts import Change, build_part, changes, content_part, pod_part
from tailhold_api.rollout import RolloutStrategy
from tailhold_api.room import Node, asked_by, could_fit, fitting
from tailhold_api.spec import Spec

_ANY = "0" * 64
"""Stands for a snapshot: both sides are compared with the same one."""


class Outage(StrEnum):
    """What becomes of the answers while the pods are replaced."""

    NONE = "None"
    FEWER_PODS = "FewerPods"
    UNTIL_READY = "UntilReady"


@dataclass(frozen=True)
class Forecast:
    """What will happen, and why."""

    changes: tuple[Change, ...]
    """Fields that differ; all is new where nothing was there before."""
    new_index: bool
    """A snapshot is built first; pods that run go on with the old one."""
    new_pods: bool
    """Pods are started for the new revision."""
    new_content: bool
    """Running pods are handed other content; false where there are new pods, which start with it."""
    gpus_for_all: int
    """GPUs of all pods once the edit is through."""
    gpus_beside: int
    """More GPUs that are needed to start all new pods beside the old ones."""
    strategy: RolloutStrategy | None
    """How pods are replaced; None where none are, or where it depends on room that is not known."""
    fitting: int | None
    """New pods that find room beside the old ones; None where it is not known."""
    unfit: bool
    """No node could hold such a pod, even if nothing else ran there: nothing is stopped for it."""
    outage: Outage | None
    """None where it depends on room that is not known."""


def forecast(
    pipeline: str,
    old: Spec | None,
    new: Spec,
    nodes: Sequence[Node] | None,
    *,
    rebuild: bool = False,
    serves: bool = True,
) -> Forecast:
    """Compare two specs. `nodes` are those that pods may go to; None where they are not known.

    With `serves` false no pod answers yet, and none can be missed.
    """
    new_pods = old is None or digest(pod_part(pipeline, old)) != digest(pod_part(pipeline, new))
    build = build_part(new)
    new_index = build is not None and (old is None or rebuild or build_part(old) != build)
    content = old is not None and digest(content_part(old, _given(old))) != digest(content_part(new, _given(new)))
    replaced = new.replicas if new_pods and old is not None and serves else 0
    room = _room(new, nodes) if new_pods else None
    unfit = bool(new_pods and new.replicas and nodes is not None and not could_fit(asked_by(new.placement), nodes))
    strategy = _strategy(new.rollout.strategy, new.replicas, room, unfit) if replaced else None
    return Forecast(
        changes=changes(old, new) if old else (),
        new_index=new_index,
        new_pods=new_pods,
        new_content=(content or new_index) and not new_pods,
        gpus_for_all=new.placement.gpu.count * new.replicas,
        gpus_beside=new.placement.gpu.count * replaced,
        strategy=strategy,
        fitting=room,
        unfit=unfit,
        outage=_outage(new.rollout.strategy, strategy, room) if replaced else Outage.NONE,
    )


def _given(spec: Spec) -> str:
    return spec.index.snapshot.digest if spec.index.snapshot else _ANY


def _room(new: Spec, nodes: Sequence[Node] | None) -> int | None:
    return None if nodes is None else min(new.replicas, fitting(asked_by(new.placement), nodes))


def _strategy(asked: RolloutStrategy, replicas: int, room: int | None, unfit: bool) -> RolloutStrategy | None:
    if asked is not RolloutStrategy.AUTO:
        return asked
    if room is None:
        return None
    return RolloutStrategy.SURGE if unfit or room >= replicas else RolloutStrategy.DRAIN_FIRST


def _outage(asked: RolloutStrategy, taken: RolloutStrategy | None, room: int | None) -> Outage | None:
    """`Auto` stops as many old pods as new ones lack room; `DrainFirst`, where it is asked for, stops them all."""
    if taken is None:
        return None
    if taken is RolloutStrategy.SURGE:
        return Outage.NONE
    return Outage.FEWER_PODS if asked is RolloutStrategy.AUTO and room else Outage.UNTIL_READY
