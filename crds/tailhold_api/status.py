"""The status of a RagPipeline: written by the operator alone."""

from pydantic import Field

from tailhold_api.fields import Model
from tailhold_api.memory import MemorySum


class Condition(Model):
    """One statement about the pipeline, as in the Kubernetes API conventions."""

    type: str = Field(min_length=1, max_length=64)
    """What the condition speaks about."""
    status: str = Field(pattern=r"^(True|False|Unknown)$")
    """`True`, `False` or `Unknown`."""
    observed_generation: int = Field(0, ge=0)
    """The generation of the spec that this was said of."""
    last_transition_time: str = Field(max_length=64)
    """When `status` last changed, RFC 3339 in UTC."""
    reason: str = Field(min_length=1, max_length=64)
    """Why, in one word; each is documented with the next step."""
    message: str = Field("", max_length=32768)
    """Why, in a sentence, with the numbers."""


class RevisionStatus(Model):
    """A revision: what the pods are started with, and what they were given since."""

    name: str = Field(max_length=64)
    """Both digests, shortened."""
    pod_digest: str = Field(max_length=64)
    """SHA-256 of the pod part."""
    content_digest: str = Field("", max_length=64)
    """SHA-256 of the content part."""
    snapshot: str = Field("", max_length=64)
    """Digest of the index snapshot."""
    image: str = Field("", max_length=500)
    """Image of the server."""
    ready_replicas: int = Field(0, ge=0)
    """Pods of it that answer."""


class Progress(Model):
    """How far a long step is."""

    step: str = Field(max_length=64)
    """What is being done."""
    done: int = Field(ge=0)
    """How much of it."""
    total: int = Field(0, ge=0)
    """Of how much; 0 where it is not known yet."""
    unit: str = Field(max_length=32)
    """Of what."""
    eta_seconds: int | None = Field(None, ge=0)
    """Seconds left at the pace so far."""


class FieldChange(Model):
    """One field of the last edit and what its change does."""

    path: str = Field(max_length=253)
    """The field."""
    field_class: str = Field(alias="class", max_length=16)
    """`restart`, `reload`, `live` or `policy`."""


class Ended(Model):
    """A revision that served or tried to, and why it ended."""

    name: str = Field(max_length=64)
    """Both digests, shortened."""
    reason: str = Field(max_length=64)
    """Why it ended."""
    at: str = Field(max_length=64)
    """When, RFC 3339 in UTC."""


class SideStatus(Model):
    """One side of a comparison since the step began."""

    requests: int = Field(0, ge=0)
    """Requests that count."""
    bad: int = Field(0, ge=0)
    """Of these, how many broke the objective."""
    bad_percent: float = Field(0.0, ge=0, le=100)
    """The same as a share."""


class VerdictStatus(Model):
    """What is known of the candidate in this step, looked at every half minute or when it changes."""

    answer: str = Field(max_length=16)
    """`Pass`, `Fail`, `Undecided` (too few requests yet) or `Blind` (the counters could not be read)."""
    why: str = Field(max_length=32)
    """The reason of the answer."""
    objective: str = Field("", max_length=64)
    """The objective that decided, or that needs longest."""
    candidate: SideStatus = SideStatus()
    """The candidate's requests."""
    stable: SideStatus | None = None
    """Those of the revision that serves, over the same minutes."""
    needed: int | None = Field(None, ge=0)
    """Requests of the candidate until it can pass, if it goes on as it did."""
    earliest: str = Field("", max_length=64)
    """When that can be at the present rate, RFC 3339 in UTC."""
    at: str = Field("", max_length=64)
    """When this was looked at, RFC 3339 in UTC."""


class ProbeStatus(Model):
    """What a candidate pod answered to the probe."""

    requests: int = Field(0, ge=0)
    """Questions asked."""
    failed: int = Field(0, ge=0)
    """Of these, how many had no whole answer."""
    recall_percent: float = Field(0.0, ge=0, le=100)
    """Passages that its search found of those that an exact search finds."""
    message: str = Field("", max_length=500)
    """What went wrong, in the pod's words; empty where nothing did."""


class RolloutStatus(Model):
    """The rollout that is under way."""

    revision: str = Field(max_length=64)
    """The candidate."""
    stable: str = Field("", max_length=64)
    """The revision that it is compared with; empty where none serves beside it."""
    strategy: str = Field(max_length=16)
    """`Surge`, `DrainFirst`, or `InPlace` for new content on the running pods."""
    strategy_why: str = Field("", max_length=500)
    """Why that one."""
    phase: str = Field(max_length=16)
    """`Starting`, `Probing`, `Stepping`, `Proving` (it serves alone and is judged by the objective) or `Promoting`."""
    step: int = Field(0, ge=0)
    """The step, from 1; 0 outside of them."""
    steps: int = Field(0, ge=0)
    """How many there are."""
    wanted_percent: int = Field(0, ge=0, le=100)
    """The step's weight; `status.weightPercent` is what the pods say."""
    since: str = Field("", max_length=64)
    """When phase or step began, RFC 3339 in UTC."""
    probe: ProbeStatus | None = None
    """What the candidate answered before it got traffic."""
    verdict: VerdictStatus | None = None
    """What is known of it."""


class SnapshotStatus(Model):
    """The snapshot of the newest index build."""

    digest: str = Field("", max_length=64)
    """Names the snapshot on the volume."""
    build: str = Field("", max_length=64)
    """Digest of what it was built from."""
    documents: int = Field(0, ge=0)
    """Documents that gave text."""
    failed_documents: int = Field(0, ge=0)
    """Documents that could not be read; each is named in the Job's log and in the snapshot's report."""
    chunks: int = Field(0, ge=0)
    """Passages in the index."""


class StartPhase(Model):
    """One step of a pod's start. Steps may run side by side."""

    name: str = Field(max_length=32)
    """What was done."""
    began_milliseconds: int = Field(ge=0)
    """When it began, since the start."""
    milliseconds: int = Field(ge=0)
    """How long it took."""
    overlapped_milliseconds: int = Field(0, ge=0)
    """Of these, how many had another step beside them: the rest is what a faster step would save."""


class CapacityStatus(Model):
    """What the pods that serve can carry, as each measures it on its own answers: an estimate of the throughput limit,
    for requests like those seen. Latency rises well before it."""

    pods: int = Field(ge=0)
    """Pods that serve and told their rates."""
    requests_per_second: float = Field(ge=0)
    """All of them together."""
    requests_per_second_per_pod: float = Field(ge=0)
    """One of them, on average."""
    limited_by: str = Field("", max_length=32)
    """What keeps the slowest of them from more: `engine`, `cache` (of keys and values) or `retrieval`."""
    prefill_tokens_per_second: int = Field(ge=0)
    """Prompt tokens that a pod's engine computes, on average."""
    decode_tokens_per_second: int = Field(ge=0)
    """Answer tokens that a pod's engine gives to all streams together, on average."""
    requests_seen: int = Field(0, ge=0)
    """Answers that the least experienced of them has measured; at 0 prompts like its first question and answers of
    `prompt.maxAnswerTokens` are assumed."""


class PeriodStatus(Model):
    """Requests of a while."""

    requests: int = Field(0, ge=0)
    """Requests that count."""
    bad: int = Field(0, ge=0)
    """Of these, how many broke the objective."""
    bad_percent: float = Field(0.0, ge=0, le=100)
    """The same as a share."""


class ObjectiveStatus(Model):
    """One objective, over all pods and revisions that answered."""

    name: str = Field(max_length=64)
    """Metric and threshold, as in `tailhold_objective_seconds`."""
    percent: float = Field(ge=0, le=100)
    """What is promised."""
    broken: bool = False
    """Whether it is called broken."""
    hour: PeriodStatus = PeriodStatus()
    """The last hour."""
    five_minutes: PeriodStatus = PeriodStatus()
    """The last five minutes."""
    budget_burned_percent: float = Field(0.0, ge=0)
    """Bad requests of the hour in percent of those that were allowed among as many."""


class SloStatus(Model):
    """What is promised and what was done, written anew every few minutes and when `SLOMet` changes."""

    source: str = Field("Pods", max_length=16)
    """Where counters are read: `Pods` or `Prometheus`."""
    read_at: str = Field("", max_length=64)
    """When all pods had been read for these figures, RFC 3339 in UTC; empty where they never were."""
    objectives: tuple[ObjectiveStatus, ...] = Field((), max_length=8)
    """In the order of the spec."""


class AuditHead(Model):
    """How far a pod's chain of audit records went when it was looked at last: what ends before it was cut."""

    pod: str = Field(max_length=63)
    """The pod, which may be gone."""
    sequence: int = Field(ge=0)
    """Number of the last record."""
    hash: str = Field(max_length=64)
    """Its hash."""
    at: str = Field(max_length=64)
    """When it was seen first, RFC 3339 in UTC."""


class Status(Model):
    """What is, as the operator saw it last."""

    observed_generation: int = Field(0, ge=-1)
    """The generation of the spec that this status speaks of; -1 before the operator's first look, so that nobody takes
    a pipeline that was just made for one that is done."""
    conditions: tuple[Condition, ...] = Field((), max_length=32)
    """Statements about the pipeline; `Ready` is the summary."""
    stable: RevisionStatus | None = None
    """The revision that serves."""
    candidate: RevisionStatus | None = None
    """The revision that is to replace it."""
    weight_percent: int | None = Field(None, ge=0, le=100)
    """Share of requests that the candidate answers, as the pods that serve say."""
    rollout: RolloutStatus | None = None
    """The rollout that is under way, where the pipeline has objectives."""
    p99_milliseconds: int | None = Field(None, ge=0)
    """99th percentile of the time to the whole answer on the stable side, over the last five minutes."""
    replicas: int = Field(0, ge=0)
    """Pods of the revision that serves."""
    ready_replicas: int = Field(0, ge=0)
    """Pods of it that answer."""
    replicas_text: str = Field("", max_length=32)
    """Ready and wanted pods, as in `2/3`."""
    selector: str = Field("", max_length=500)
    """Label selector of the serving pods, for autoscalers."""
    snapshot: SnapshotStatus | None = None
    """The newest index snapshot."""
    memory: tuple[MemorySum, ...] = Field((), max_length=2)
    """What a pod of the newest spec takes of its GPU's memory and of its own, added up before it is started."""
    progress: Progress | None = None
    """The long step that runs now."""
    last_change: tuple[FieldChange, ...] = Field((), max_length=64)
    """What the last edit changed, field by field, with the class of each."""
    phases: tuple[StartPhase, ...] = Field((), max_length=16)
    """The steps of the newest pod's start, by when each began."""
    capacity: CapacityStatus | None = None
    """What the pods that serve can carry, looked at every few minutes."""
    slo: SloStatus | None = None
    """How the objectives fare; `SLOMet` is the summary."""
    url: str = Field("", max_length=500)
    """Where questions are answered within the cluster."""
    audit: tuple[AuditHead, ...] = Field((), max_length=20)
    """Ends of the pods' chains of audit records, looked at every few minutes, newest first: `tailhold audit verify
    --pipeline` holds the files against them."""
    ended: tuple[Ended, ...] = Field((), max_length=10)
    """The last revisions that ended, newest first, with why."""
