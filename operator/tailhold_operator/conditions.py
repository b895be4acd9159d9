"""Conditions as the Kubernetes API conventions want them: the time moves with the status, and only then."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.status import Condition
from tailhold_operator.findings import FINE, Finding, stuck

_LONGEST = (4096, 2048, 1024, 640)
"""Bytes that one message may have: the most with which all of them fit."""
_ROOM = 5120
"""Bytes of all messages together: a status is kept whole by etcd, in every watch and by every controller's cache."""
_CUT = "..."
_ORDER = (
    ConditionType.ACCEPTED,
    ConditionType.INDEX_LOADED,
    ConditionType.ROLLED_OUT,
    ConditionType.MODEL_LOADED,
    ConditionType.AVAILABLE,
)
"""Which one `Ready` takes its reason from: the first that does not hold."""


def stamp(moment: datetime) -> str:
    """A moment in whole seconds, RFC 3339 in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def summary(findings: Mapping[ConditionType, Finding]) -> Finding:
    """Ready: all hold, or else the first that the user has to mend, or else the first that does not hold.

    With no replicas asked for, all is as asked.
    """
    failing = [findings[kind] for kind in _ORDER if kind in findings and not findings[kind].holds]
    found = next((each for each in failing if each.stalled), failing[0] if failing else FINE)
    if failing and all(each.reason is Reason.NO_REPLICAS for each in failing):
        return replace(found, holds=True)
    return found


def set_conditions(
    before: Iterable[Condition], findings: Mapping[ConditionType, Finding], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """All conditions of a pipeline, with the summary and kstatus's two where they are true."""
    ready = summary(findings)
    known = {each.type: each for each in before}
    told = {
        ConditionType.READY: ready,
        **{kind: findings[kind] for kind in ConditionType if kind in findings},
    }
    if not ready.holds:
        extra = ConditionType.STALLED if _is_stuck(findings) else ConditionType.RECONCILING
        told[extra] = Finding(True, _why(findings).reason, _why(findings).message)
    fitted = dict(zip(told, fitting([each.message for each in told.values()]), strict=True))
    return tuple(
        _condition(known.get(kind), kind, replace(each, message=fitted[kind]), generation, now)
        for kind, each in told.items()
    )


def fitting(messages: Sequence[str]) -> list[str]:
    """All messages, the long ones cut so that together they stay within bounds."""
    sizes = [_bytes(each) for each in messages]
    fits = (longest for longest in _LONGEST if sum(min(size, longest) for size in sizes) <= _ROOM)
    longest = next(fits, _LONGEST[-1])
    return [_cut(each, longest) for each in messages]


def _cut(text: str, longest: int) -> str:
    """Its beginning, in no more bytes."""
    if _bytes(text) <= longest:
        return text
    while (size := _bytes(text)) > longest - len(_CUT):
        text = text[: min(len(text) - 1, len(text) * longest // size)]
    return text + _CUT


def _bytes(text: str) -> int:
    """As the API server writes it: JSON that escapes HTML too."""
    written = json.dumps(text)
    return len(written) + 5 * sum(map(written.count, "<>&"))


def _is_stuck(findings: Mapping[ConditionType, Finding]) -> bool:
    return any(each.stalled for each in findings.values())


def _why(findings: Mapping[ConditionType, Finding]) -> Finding:
    return next((each for each in findings.values() if each.stalled), summary(findings))


def _condition(
    before: Condition | None, kind: ConditionType, finding: Finding, generation: int, now: datetime
) -> Condition:
    status = finding.status
    since = before.last_transition_time if before and before.status == status else stamp(now)
    return Condition(
        type=kind.value,
        status=status,
        observed_generation=generation,
        last_transition_time=since,
        reason=finding.reason.value,
        message=finding.message,
    )


def refused(message: str) -> Finding:
    """The spec is not understood."""
    return stuck(Reason.INVALID_SPEC, message)
