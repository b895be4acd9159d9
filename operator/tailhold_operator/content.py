"""How a content part reaches running pods: one pod first, then what restarts start from, then the rest."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Taker:
    """A ready pod, and the content that it says is in force; None where it does not answer."""

    name: str
    content: str | None


@dataclass(frozen=True)
class Spread:
    """What to mount, and which pods to hand which content."""

    mount: str
    """Digest of the content that a restarted pod has to start from."""
    push: tuple[str, ...] = ()
    """Pods to hand it to."""
    give: str = ""
    """Digest of what they are handed."""


def spread(
    wanted: str,
    mounted: str | None,
    fallback: str | None,
    pods: Sequence[Taker],
    *,
    refused: bool,
    to_one: bool = False,
) -> Spread:
    """One step of bringing `wanted` to all pods, or of taking it back once a pod has refused it.

    `to_one` leaves it with the first pod: the others, and those that start, have what is mounted. Nobody is cut off:
    with no pod that runs on the mounted content, the wanted one is mounted at once.
    """
    if refused and fallback:
        return _even(fallback, pods)
    taken = [pod.name for pod in pods if pod.content == wanted]
    if taken and to_one and mounted is not None and mounted != wanted:
        others = (pod.name for pod in pods if pod.name != taken[0] and pod.content not in (None, mounted))
        return Spread(mounted, tuple(others), mounted)
    if mounted is None or mounted == wanted or taken or not pods:
        return _even(wanted, pods)
    first = next((pod.name for pod in pods if pod.content is not None), None)
    return Spread(mounted, (first,) if first else (), wanted)


def _even(digest: str, pods: Sequence[Taker]) -> Spread:
    """All pods that answer to the content that is mounted."""
    return Spread(digest, tuple(pod.name for pod in pods if pod.content not in (None, digest)), digest)
