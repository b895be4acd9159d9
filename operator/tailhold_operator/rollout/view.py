"""What a step of a rollout is decided from, and what it decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tailhold_api.parts import SHORT
from tailhold_api.rollout import Rollout
from tailhold_api.slo import Slo
from tailhold_api.status import RevisionStatus
from tailhold_operator.findings import Finding
from tailhold_operator.history import History
from tailhold_operator.judge.verdict import Verdict
from tailhold_operator.judge.watched import Watched

SETTLE = timedelta(seconds=10)
"""How long the old pods stay once the Service has turned: every node has to learn of it first."""
DRAIN_STEP = timedelta(seconds=15)
"""How long room that came free is given to be taken before more is made."""
PATIENCE = timedelta(seconds=120)
"""How long a candidate for which everything was drained may go on waiting for room."""
POLL = timedelta(seconds=5)
REPEAT = timedelta(seconds=3)
"""How often a weight is said again: pods forget it 10 s after they were told last, and a look may take some seconds."""


@dataclass(frozen=True)
class Side:
    """The pods of one pod part."""

    wanted: int
    """Replicas that its Deployment asks for."""
    pods: int
    """Pods that exist, those that are leaving among them."""
    ready: int
    confirmed: int
    """Pods that are ready and say that they run both parts of the revision that is asked for."""
    homeless: int
    """Pods for which the nodes that fit have no room."""
    created: datetime
    trouble: Finding
    broken: Finding | None = None
    """Of a pod that ran and fails by its own doing. One whose node went away is not."""


@dataclass(frozen=True)
class Commands:
    """What people ask for by annotation: each a revision's name, with or without `@anything` behind it."""

    promote: str = ""
    abort: str = ""
    retry: str = ""


@dataclass(frozen=True)
class View:
    """All that a step is decided from."""

    target: RevisionStatus
    """What the spec asks for."""
    serving: str | None
    """The pod part that the Service sends questions to."""
    sides: Mapping[str, Side]
    """By pod part; one without a Deployment is missing."""
    history: History
    replicas: int
    rules: Rollout
    leaving: int = 0
    """Pods of any part that hold their room no longer than it takes them to stop."""
    slo: Slo = field(default_factory=Slo)
    watched: Watched = field(default_factory=Watched)
    commands: Commands = field(default_factory=Commands)
    lacks: str = ""
    """What a rollback to the revision that serves would not find; empty where all is there."""

    @property
    def part(self) -> str:
        """The pod part that is asked for."""
        return self.target.pod_digest[:SHORT]

    @property
    def fresh(self) -> Side | None:
        """Its pods."""
        return self.sides.get(self.part)

    @property
    def stable(self) -> Side | None:
        """The pods that serve."""
        return self.sides.get(self.serving or "")

    @property
    def confirmed(self) -> int:
        """Pods of the revision that is asked for."""
        return self.fresh.confirmed if self.fresh else 0

    @property
    def is_judged(self) -> bool:
        """Whether the revision that is asked for has to be found good first: something that was stands behind it."""
        proven = self.history.proven
        return bool(self.slo.objectives and self.rules.steps and proven and proven.name != self.target.name)


@dataclass(frozen=True)
class Step:
    """What has to be next. A Deployment that is not named is deleted."""

    serving: str
    replicas: Mapping[str, int]
    history: History
    outcome: Finding
    """Whether the revision that is asked for is rolled out."""
    wait: timedelta | None = None
    weight: int = 0
    """Percent of the requests that the pods that serve have to hand over to the candidate."""
    probes: bool = False
    """Whether a pod of the candidate has to be asked questions of ours."""
    to_one: bool = False
    """Whether new content goes to one pod, and no further yet."""
    verdict: Verdict | None = None
    """What is known of the candidate, where it is judged."""


def moment(text: str) -> datetime:
    """A moment as it is written down."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
