"""What the pods that serve can carry, from what they measured themselves."""

from collections.abc import Mapping
from typing import Any

from tailhold_api.status import CapacityStatus
from tailhold_operator.observe import Pod, Seen, pods_of
from tailhold_operator.render.front import served_part
from tailhold_operator.render.identity import identity_of
from tailhold_operator.sides import answers

_LIMITS = 32
"""Characters of what limits a pod, as a status has room for."""


def front_pods(seen: Seen) -> tuple[Pod, ...]:
    """The pods that the Service sends questions to."""
    part = served_part(seen.find("Service", identity_of(seen.pipeline).child()))
    return tuple(pod for pod in pods_of(seen) if pod.pod_part == part and answers(pod))


def carried(seen: Seen, before: CapacityStatus | None, *, sample: bool) -> CapacityStatus | None:
    """Looked at seldom, since the figures move with each answer; at once where none was known or pods came or went."""
    told = [found for pod in front_pods(seen) if (found := _told(seen, pod))]
    if before is not None and not sample and before.pods == len(told):
        return before
    if not told:
        return None
    return CapacityStatus(
        pods=len(told),
        requests_per_second=_rounded(sum(each["requestsPerSecond"] for each in told)),
        requests_per_second_per_pod=_rounded(sum(each["requestsPerSecond"] for each in told) / len(told)),
        limited_by=min(told, key=lambda each: float(each["requestsPerSecond"]))["limitedBy"],
        prefill_tokens_per_second=round(sum(each["prefill"] for each in told) / len(told)),
        decode_tokens_per_second=round(sum(each["decode"] for each in told) / len(told)),
        requests_seen=min(each["seen"] for each in told),
    )


def _told(seen: Seen, pod: Pod) -> Mapping[str, Any] | None:
    """A pod's figures; None where one of them is not what it should be."""
    report = seen.reports.get(pod.name)
    rates = report.rates if report else {}
    able, asked = _block(rates, "capacity"), _block(rates, "requests")
    found = {
        "requestsPerSecond": able.get("requestsPerSecond"),
        "prefill": rates.get("prefillTokensPerSecond"),
        "decode": rates.get("decodeTokensPerSecond"),
        "seen": asked.get("seen"),
    }
    if not all(isinstance(each, int | float) and 0 <= each < 1e9 for each in found.values()):
        return None
    return {**found, "limitedBy": str(able.get("limitedBy", ""))[:_LIMITS], "seen": int(found["seen"] or 0)}


def _block(rates: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = rates.get(name)
    return found if isinstance(found, dict) else {}


def _rounded(value: float) -> float:
    """To two places that count: more would be written anew all the time and is not known so well."""
    return float(f"{value:.2g}")
