"""What is remembered of a judged rollout: enough for another operator to go on where this one stopped."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator

from tailhold_api.fields import Model
from tailhold_api.status import ProbeStatus


def _moment_or_nothing(text: str) -> str:
    try:
        datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return ""
    return text


Moment = Annotated[str, AfterValidator(_moment_or_nothing)]
"""RFC 3339 in UTC; one that cannot be read counts as not there."""
IN_PLACE = "InPlace"
"""The strategy of new content on the running pods."""


class Phase(StrEnum):
    """Where a rollout is."""

    STARTING = "Starting"
    """The candidate's pods come up, or a pod takes its content."""
    PROBING = "Probing"
    """A pod of it is asked questions of ours."""
    STEPPING = "Stepping"
    """It answers a share of the requests beside the stable side."""
    PROVING = "Proving"
    """It serves alone, judged by the objective, and can be taken back."""
    PROMOTING = "Promoting"
    """It passed, and takes over."""


class Passed(Model):
    """A step that the judge let pass, with the numbers that it rested on."""

    weight_percent: int
    why: str
    objective: str
    requests: int
    """Of the candidate."""
    bad: int
    stable_requests: int
    """0 where there was no other side."""
    stable_bad: int
    at: Moment


class Trial(Model):
    """A judged rollout."""

    revision: str
    """The candidate's name."""
    phase: Phase = Phase.STARTING
    step: int = 0
    """Counted from 0."""
    weight: int = 0
    """Percent of the requests that the pods are told to hand over."""
    began: Moment
    """When the phase or the step began."""
    counted: Moment = ""
    """Since when requests count towards a verdict; empty while the step's pods come up."""
    strategy: str
    why: str = ""
    """Why that strategy."""
    probe: ProbeStatus | None = None
    passed: tuple[Passed, ...] = ()
    by_hand: bool = False
    """Whether a person promoted it without a verdict."""
    ended: str = ""
    """How it ended: `Promoted`, or the reason of its failure; empty while it is under way."""

    def entered(self, phase: Phase, at: str, **more: object) -> "Trial":
        """The same trial in another phase or step."""
        return self.model_copy(update={"phase": phase, "began": at, "counted": "", **more})
