"""What an edit of a spec will do, before it is applied. The operator acts on the same parts, digests and classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tailhold_api.codec import digest
from tailhold_api.parts import Change, build_part, changes, content_part, pod_part
from tailhold_api.spec import RolloutStrategy, Spec

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
    """New pods that find their GPUs beside the old ones; None where it is not known or no GPU is asked for."""
    outage: Outage | None
    """None where it depends on room that is not known."""


def forecast(
    pipeline: str,
    old: Spec | None,
    new: Spec,
    free: Sequence[int] | None,
    *,
    rebuild: bool = False,
    serves: bool = True,
) -> Forecast:
    """Compare two specs. `free` are the free GPUs of each node that fits; None where that is not known.

    With `serves` false no pod answers yet, and none can be missed.
    """
    new_pods = old is None or digest(pod_part(pipeline, old)) != digest(pod_part(pipeline, new))
    new_index = old is None or rebuild or digest(build_part(old)) != digest(build_part(new))
    content = old is not None and digest(content_part(old, _ANY)) != digest(content_part(new, _ANY))
    each, replaced = new.placement.gpu.count, new.replicas if new_pods and old is not None and serves else 0
    fitting = _fitting(each, new.replicas, free) if new_pods else None
    strategy = _strategy(new.rollout.strategy, new.replicas, fitting) if replaced else None
    return Forecast(
        changes=changes(old, new) if old else (),
        new_index=new_index,
        new_pods=new_pods,
        new_content=(content or new_index) and not new_pods,
        gpus_for_all=each * new.replicas,
        gpus_beside=each * replaced,
        strategy=strategy,
        fitting=fitting,
        outage=_outage(new.rollout.strategy, strategy, fitting) if replaced else Outage.NONE,
    )


def _fitting(each: int, replicas: int, free: Sequence[int] | None) -> int | None:
    """A pod's GPUs are on one node."""
    if not each or free is None:
        return None
    return min(replicas, sum(count // each for count in free))


def _strategy(asked: RolloutStrategy, replicas: int, fitting: int | None) -> RolloutStrategy | None:
    if asked is not RolloutStrategy.AUTO:
        return asked
    if fitting is None:
        return None
    return RolloutStrategy.SURGE if fitting >= replicas else RolloutStrategy.DRAIN_FIRST


def _outage(asked: RolloutStrategy, taken: RolloutStrategy | None, fitting: int | None) -> Outage | None:
    """`Auto` stops as many old pods as new ones lack room; `DrainFirst`, where it is asked for, stops them all."""
    if taken is None:
        return None
    if taken is RolloutStrategy.SURGE:
        return Outage.NONE
    return Outage.FEWER_PODS if asked is RolloutStrategy.AUTO and fitting else Outage.UNTIL_READY
