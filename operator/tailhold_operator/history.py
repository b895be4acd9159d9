"""What a pipeline has to remember, kept in a ConfigMap of its own so that a lost status loses nothing."""

from typing import Annotated

from pydantic import AfterValidator, Field

from tailhold_api.conditions import Reason
from tailhold_api.fields import Model
from tailhold_api.inspection import Inspection
from tailhold_api.parts import SHORT
from tailhold_api.spec import Spec
from tailhold_api.status import Ended, FieldChange, RevisionStatus, SnapshotStatus
from tailhold_operator.trial import Moment, Trial

KEY = "history.json"
"""The key in the ConfigMap."""
_NO_ROOM_MADE = {"drained_at": "", "freed_at": ""}
_ENDED = 10
_LONGEST = 4096
_SNAPSHOTS = 50
_INSPECTIONS = 10
_TRIALS = 5


def _known_reason(reason: str) -> str:
    return reason if reason in set(Reason) else Reason.START_FAILED.value


class Failure(Model):
    """Why a revision is not tried again."""

    name: str
    """The revision."""
    reason: Annotated[str, AfterValidator(_known_reason)]
    """One of `tailhold_api.conditions.Reason`; another release's that we do not know reads as StartFailed."""
    message: str
    """The details."""
    at: str
    """When, RFC 3339 in UTC."""


class History(Model):
    """All that cannot be seen from the other children."""

    spec: Spec | None = None
    """The last valid spec that was acted on."""
    last_change: tuple[FieldChange, ...] = ()
    """What it changed."""
    snapshots: tuple[SnapshotStatus, ...] = ()
    """Index builds that ended well, newest first."""
    inspections: tuple[Inspection, ...] = ()
    """What was found in models and images, newest first."""
    revisions: tuple[RevisionStatus, ...] = ()
    """Revisions that have served, newest first; the first is the one that serves."""
    switched_at: Moment = ""
    """When the Service was last turned to another revision's pods, RFC 3339 in UTC."""
    candidate: RevisionStatus | None = None
    """The revision that is being tried."""
    drained_at: Moment = ""
    """When the serving pods were asked to make room for the candidate; empty when they were not."""
    freed_at: Moment = ""
    """When, while a candidate was tried, pods were last seen leaving their room; empty when none were."""
    uploads: str = ""
    """Mark of the uploads that are asked for; empty where there never were any."""
    uploads_next: str = ""
    """Mark of those that an index is built for; empty where none is."""
    uploads_digest: str = ""
    """What the pods said of them."""
    uploads_at: Moment = ""
    """When that build was begun, RFC 3339 in UTC."""
    failure: Failure | None = Field(None)
    """The last revision that was given up, while the spec still asks for it."""
    ended: tuple[Ended, ...] = ()
    """The last revisions that ended, newest first."""
    trial: Trial | None = None
    """The judged rollout that is under way."""
    trials: tuple[Trial, ...] = ()
    """The last ones that came to an end, newest first, with what they were decided on."""
    marks: tuple[str, ...] = ()
    """What people asked for by annotation and was done, so that it is done once."""

    @property
    def proven(self) -> RevisionStatus | None:
        """The revision that a rollback goes back to: the last one that was found good, or that served first."""
        return self.revisions[0] if self.revisions else None

    def snapshot_of(self, build: str) -> SnapshotStatus | None:
        """The snapshot that was built from a build part."""
        return next((each for each in self.snapshots if each.build == build), None)

    def inspection_of(self, digest: str) -> Inspection | None:
        """What was found in what an InspectionPart names."""
        return next((each for each in self.inspections if each.digest == digest), None)

    def with_inspection(self, found: Inspection) -> "History":
        """Remember what was found."""
        others = tuple(each for each in self.inspections if each.digest != found.digest)
        return self.model_copy(update={"inspections": (found, *others)[:_INSPECTIONS]})

    def proves(self, pod_digest: str, snapshot: str | None) -> bool:
        """Whether pods of this pod part have served, with this snapshot where one is given."""
        served = (each for each in self.revisions if each.pod_digest == pod_digest)
        return any(snapshot in (None, each.snapshot) for each in served)

    def served(self, pod_part: str) -> RevisionStatus | None:
        """The newest revision of a pod part, by its short digest, that ever answered in front."""
        return next((each for each in self.revisions if each.pod_digest[:SHORT] == pod_part), None)

    def snapshots_in_use(self) -> tuple[str, ...]:
        """Snapshots of what serves, of what is tried and of what a rollback may want."""
        tried = (self.candidate,) if self.candidate else ()
        found = (each.snapshot for each in (*tried, *self.revisions) if each.snapshot)
        return tuple(sorted(set(found)))

    def failed(self, revision: str) -> Failure | None:
        """Why a revision was given up, if it was."""
        return self.failure if self.failure and self.failure.name == revision else None

    def with_snapshot(self, snapshot: SnapshotStatus) -> "History":
        """Remember a build's result."""
        others = tuple(each for each in self.snapshots if each.build != snapshot.build)
        return self.model_copy(update={"snapshots": (snapshot, *others)[:_SNAPSHOTS]})

    def aimed_at(self, revision: str) -> "History":
        """Forget a failure of another revision than the one that is asked for now: it may be tried again."""
        stale = self.failure is not None and self.failure.name != revision
        return self.model_copy(update={"failure": None}) if stale else self

    def tried(self, candidate: RevisionStatus | None, at: str) -> "History":
        """Remember what is being tried; one of another pod part that was tried before ends here.

        Room that was made for it is room for the next one; with none to try, what serves gets it back.
        """
        bare = candidate.model_copy(update={"ready_replicas": 0}) if candidate else None
        trial = self.trial if self.trial and candidate and self.trial.revision == candidate.name else None
        trying = self.model_copy(update={"candidate": bare, "trial": trial})
        before = self.candidate
        if before is None or (bare and bare.pod_digest == before.pod_digest):
            return trying
        room = self.drained_at if bare else ""
        return trying.model_copy(update={"drained_at": room}).with_ended(before.name, "Superseded", at)

    def with_ended(self, name: str, reason: str, at: str) -> "History":
        """Remember why a revision ended."""
        return self.model_copy(update={"ended": (Ended(name=name, reason=reason, at=at), *self.ended)[:_ENDED]})

    def with_failure(self, failure: Failure) -> "History":
        """Give a revision up. A pod's words may be of any length."""
        failure = failure.model_copy(update={"message": failure.message[:_LONGEST]})
        known = self._closed(failure.name, failure.reason)
        given_up = known.model_copy(update={"failure": failure, "candidate": None, **_NO_ROOM_MADE})
        return given_up.with_ended(failure.name, failure.reason, failure.at)

    def with_serving(self, revision: RevisionStatus, keep: int, at: str) -> "History":
        """Remember that a revision serves. Saying so again changes nothing."""
        bare = revision.model_copy(update={"ready_replicas": 0})
        known = self._closed(bare.name, "Promoted").model_copy(update={"candidate": None, **_NO_ROOM_MADE})
        if known.revisions and known.revisions[0] == bare:
            return known
        others = tuple(each for each in known.revisions if each.name != bare.name)
        served = known.model_copy(update={"revisions": (bare, *others)[: keep + 1]})
        if not known.revisions:
            return served
        return served.with_ended(known.revisions[0].name, "Replaced", at)

    def on_trial(self, trial: Trial) -> "History":
        """Remember how far a judged rollout is."""
        return self.model_copy(update={"trial": trial})

    def _closed(self, revision: str, how: str) -> "History":
        """The trial of a revision comes to its end; that of another one is over without one."""
        if self.trial is None:
            return self
        own = (self.trial.model_copy(update={"ended": how}),) if self.trial.revision == revision else ()
        return self.model_copy(update={"trial": None, "trials": (*own, *self.trials)[:_TRIALS]})
