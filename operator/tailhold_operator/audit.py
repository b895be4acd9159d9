"""Ends of the pods' chains of audit records, kept where who can write the records cannot."""

from collections.abc import Sequence

from tailhold_api.status import AuditHead
from tailhold_operator.observe import Seen

_MOST = 20


def audit_heads(before: Sequence[AuditHead], seen: Seen, now: str) -> tuple[AuditHead, ...]:
    """What was known, and at the seldom looks what pods say that got on since; newest first.

    A pod that says less than it once said has lost records: what it said stays, and `tailhold audit verify` finds it.
    """
    if not seen.sampled:
        return tuple(before)
    known = {head.pod: head for head in before}
    for pod, report in sorted(seen.reports.items()):
        told = report.audit
        if told and (pod not in known or told.sequence > known[pod].sequence):
            known[pod] = AuditHead(pod=pod, sequence=told.sequence, hash=told.hash, at=now)
    return tuple(sorted(known.values(), key=lambda head: head.at, reverse=True)[:_MOST])
