"""From what clients uploaded to another index, beside the one that serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tailhold_api import codec
from tailhold_api.parts import SHORT, BuildPart
from tailhold_api.spec import Spec
from tailhold_operator.conditions import stamp
from tailhold_operator.history import History
from tailhold_operator.indexing import Building, assess
from tailhold_operator.observe import Report, Seen, jobs_of, pods_of
from tailhold_operator.revisions import Asked, asked_for

LOOK = timedelta(seconds=15)
"""How often pods are asked for uploads: nothing else tells of them."""


@dataclass(frozen=True)
class Refresh:
    """An index that is built while the one before it serves."""

    part: BuildPart
    building: Building

    @property
    def short(self) -> str:
        """Its build's short digest."""
        return codec.digest(self.part)[:SHORT]


@dataclass(frozen=True)
class Staged:
    """What is asked for, once uploads are looked at."""

    asked: Asked
    history: History
    refresh: Refresh | None = None


def stage(seen: Seen, name: str, spec: Spec, rebuild: str, history: History, now: datetime) -> Staged:
    """Begin another build where uploads changed and it is time; ask for its index once it is there.

    Until then everything stays as it is: the pipeline is no less ready for a document that has just come.
    """
    if spec.corpus is None or spec.corpus.uploads is None:
        return Staged(asked_for(name, spec, rebuild), history)
    if not spec.paused:
        history = noticed(history, seen.reports, timedelta(seconds=spec.corpus.min_rebuild_seconds), now)
    asked = asked_for(name, spec, rebuild + history.uploads)
    if not history.uploads_next or spec.paused:
        return Staged(asked, history)
    fresh = asked_for(name, spec, rebuild + history.uploads_next)
    if history.snapshot_of(asked.build_digest) is None:  # another corpus is asked for: one build for both
        return Staged(fresh, _promoted(history))
    known = history.snapshot_of(fresh.build_digest)
    building = assess(fresh.build_digest, known, jobs_of(seen), pods_of(seen), seen.progress)
    if building.snapshot or building.finding.stalled:  # a failure is to be seen as one of what is asked for
        return Staged(fresh, _promoted(history))
    return Staged(asked, history, Refresh(fresh.build, building) if fresh.build else None)


def noticed(history: History, reports: Mapping[str, Report], least: timedelta, now: datetime) -> History:
    """Remember uploads that differ from those of the last build, once all pods agree and it is time."""
    told = {each.uploads for each in reports.values() if each.uploads is not None}
    if history.uploads_next or len(told) != 1 or told == {history.uploads_digest}:
        return history
    if history.uploads_at and now - datetime.fromisoformat(history.uploads_at.replace("Z", "+00:00")) < least:
        return history
    digest, at = told.pop(), stamp(now)
    # The time makes it a build of its own: the snapshot of an earlier one that was alike may be gone.
    mark = f"+{digest[:16]}@{at}"
    return history.model_copy(update={"uploads_next": mark, "uploads_digest": digest, "uploads_at": at})


def _promoted(history: History) -> History:
    return history.model_copy(update={"uploads": history.uploads_next, "uploads_next": ""})
