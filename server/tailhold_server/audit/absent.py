"""Records that were seen and are not there: deleted as retention has it, or taken out."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tailhold_server.audit.record import START, Head, Record

_SLACK = timedelta(days=1)
"""A head is seen after its record was written, which may go that much before retention, counted from then, ends."""


def unexplained(pod: str, head: Head, removed: Sequence[Record], kept: Mapping[str, datetime], now: datetime) -> str:
    """Why a record that is not there is missed; empty where retention explains it.

    Who can write to the claim can seal a `removed` record too, so it counts alone where the head is known, from
    elsewhere, to be old enough. `kept` says by pod until when; a head without a time explains nothing.
    """
    if head == START:
        return ""
    named = [each for each in removed if each["pod"] == pod and each["first"] <= head.sequence <= each["last"]]
    if not named:
        return f"no file of pod {pod or '?'} is left with its record {head.sequence}, which was there"
    if any(each["last"] == head.sequence and each["lastHash"] != head.hash for each in named):
        return f"record {head.sequence} is not the one that was seen before: the chain was written anew"
    until = kept.get(pod)
    if until and any(until - _SLACK <= _time(each) <= now + _SLACK for each in named):
        return ""
    why = f"it was to be kept until {until:%Y-%m-%d}" if until else "nothing tells how old it was"
    return f"the head's record {head.sequence} is not there: vouched for by a `removed` record alone, and {why}"


def _time(removed: Record) -> datetime:
    try:
        time = datetime.fromisoformat(removed["time"])
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
