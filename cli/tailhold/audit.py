"""`tailhold audit verify`: prove that records are as they were written."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from tailhold.target import CommandError, Target
from tailhold_api import names
from tailhold_api.audit import Recording
from tailhold_api.codec import load_lenient
from tailhold_api.status import AuditHead, Status
from tailhold_server.audit.record import Head
from tailhold_server.audit.verify import ONLY, Chain, Finding
from tailhold_server.audit.verify import verify as verified

INTACT, BROKEN, TORN = 0, 1, 3
_HEAD = re.compile(r"(?:([A-Za-z0-9.-]+)=)?(\d+):([0-9a-f]{64})")


def verify(folder: Path, heads: Iterable[str], pipeline: str, target: Target | None) -> int:
    """Print what was found. Returns the exit code: 0 intact, 1 not, 3 intact but for a last line that is not whole."""
    seen, days = _seen_of(target, pipeline) if target else ((), 0)
    wanted = dict(map(_head, heads)) | {each.pod: Head(each.sequence, each.hash) for each in seen}
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder")
    report = verified(folder, wanted, {each.pod: _kept_until(each, days) for each in seen})
    if not report.chains and not report.findings:
        raise CommandError(f"no audit records below {folder}")
    for chain in report.chains:
        print("\n".join(_told(chain, wanted)))
    for finding in report.findings:
        print(f"BROKEN {_place(finding)}: {finding.words}", file=sys.stderr)
    for torn in report.torn:
        print(f"{_place(torn)}: {_torn(torn)}, or somebody cut it", file=sys.stderr)
    return BROKEN if report.findings else TORN if report.torn else INTACT


def _told(chain: Chain, heads: Mapping[str, Head]) -> Iterator[str]:
    whole = "broken" if chain.findings else "intact"
    yield f"{chain.folder}: {chain.records} records in {chain.files} files, {whole}"
    yield f"  head {chain.head.sequence}:{chain.head.hash}"
    if chain.pod not in heads:
        yield "  no head from elsewhere to compare with: give --head or --pipeline to see that the end is not cut off"
    if not chain.stopped:
        yield "  no last record says that nothing follows: it is still written, or its process was killed"
    if chain.interrupted:
        yield f"  {len(chain.interrupted)} answers without a recorded end: they run, or were interrupted"


def _place(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}" if finding.line else str(finding.file)


def _torn(finding: Finding) -> str:
    if finding.line:
        return "incomplete last line: the process ended while writing"
    return f"{finding.words}: the process ended before its first"


def _head(text: str) -> tuple[str, Head]:
    match = _HEAD.fullmatch(text)
    if not match:
        raise CommandError(f"--head {text}: give it as SEQ:HASH or POD=SEQ:HASH, as /v1/tuning tells it")
    return match[1] or ONLY, Head(int(match[2]), match[3])


def _kept_until(head: AuditHead, days: int) -> datetime:
    return datetime.fromisoformat(head.at) + timedelta(days=days)


def _seen_of(target: Target, pipeline: str) -> tuple[Sequence[AuditHead], int]:
    """What the operator saw last of each pod, and for how many days records are kept."""
    namespace, _, name = pipeline.rpartition("/")
    try:
        found = target.get(names.PLURAL, name, *(("-n", namespace) if namespace else ()), "--request-timeout=20s")
    except CommandError as error:
        by_hand = "Or give the head by hand: --head POD=SEQ:HASH, as `/v1/tuning` on the pod's internal port tells it"
        raise CommandError(f"the heads of {pipeline} cannot be read: {error}. {by_hand} under `audit`") from error
    if found is None:
        raise CommandError(f"there is no RagPipeline {pipeline} in the cluster of {target.where}")
    status = load_lenient(Status, found.get("status") or {})
    days = found["spec"].get("audit", {}).get("retentionDays", Recording().retention_days)
    return status.audit, days
