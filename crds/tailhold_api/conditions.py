"""The conditions of a RagPipeline and the reasons that they give. The reference docs are printed from here."""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition speaks about; each is True in a healthy pipeline, save the last two."""

    READY = "Ready"
    """The summary: the newest spec is what serves."""
    ACCEPTED = "Accepted"
    """The spec is understood, and models, card and memory were found to be what it needs."""
    AVAILABLE = "Available"
    """Some revision answers questions, whatever becomes of the newest one."""
    INDEX_LOADED = "IndexLoaded"
    """The index of the newest spec is built, published and loaded by the pods."""
    MODEL_LOADED = "ModelLoaded"
    """The newest revision's pods have loaded their models."""
    ROLLED_OUT = "RolledOut"
    """The newest revision is the one that serves, on all pods."""
    ENGINE_MATCHES_SPEC = "EngineMatchesSpec"
    """vLLM runs with what `spec.engine` asks for, by its own word. Said once a pod of the newest revision is ready; no
    part of `Ready`."""
    SLO_MET = "SLOMet"
    """What `slo.objectives` promise was kept over the last hour. Said only where something is promised; no part of
    `Ready`."""
    RECONCILING = "Reconciling"
    """Present and True while the operator works towards the newest spec (kstatus)."""
    STALLED = "Stalled"
    """Present and True when the operator cannot go on without the user (kstatus)."""


class Reason(StrEnum):
    """Why a condition has its status. The text below each says what it means and what to do next."""

    RECONCILED = "Reconciled"
    """All is as the spec asks. Nothing to do."""
    INVALID_SPEC = "InvalidSpec"
    """The spec is refused; the message names field, value and what is allowed. Correct it and apply again."""
    INSPECTING = "Inspecting"
    """A Job looks at the models' files and at the server's image, so that what cannot run is said before a pod starts.
    Wait; the message says what holds it up."""
    DOES_NOT_FIT = "DoesNotFit"
    """The models, the card or the memory cannot be as the spec asks; the message names field, value and what is there.
    What serves goes on. Correct the spec, or put other files in the model's place."""
    NAME_CONFLICT = "NameConflict"
    """An object of the name that is needed belongs to somebody else and is left alone. Rename the pipeline, or remove
    the object."""
    PAUSED = "Paused"
    """`spec.paused` is true: nothing is changed. Set it to false to go on."""
    PENDING = "Pending"
    """Nothing could be done at this look; the message says what is waited for, as for a deleted namesake's objects to
    go. Wait."""
    BUILDING_INDEX = "BuildingIndex"
    """The index Job runs; `status.progress` shows how far it is. Wait."""
    INDEX_BUILD_FAILED = "IndexBuildFailed"
    """The index Job failed; the message has its error. Correct the corpus and change the spec, or set a new value of
    the annotation `tailhold.dev/rebuild` to try the same spec again."""
    EMPTY_INDEX = "EmptyIndex"
    """The corpus gave not a single chunk; the snapshot that serves is kept. Check `corpus.sources`, then rebuild."""
    SNAPSHOT_REFUSED = "SnapshotRefused"
    """The snapshot on the volume is not what its manifest says. Rebuild it; find out what changed the volume."""
    WAITING_FOR_INDEX = "WaitingForIndex"
    """Pods are started once the snapshot that they load is there. Wait."""
    WAITING_FOR_PODS = "WaitingForPods"
    """Pods are created and wait for a node or an image; the message has the scheduler's or kubelet's words."""
    UNSCHEDULABLE = "Unschedulable"
    """No node has room or fits; the message has the scheduler's words. Free resources, or change `placement`."""
    INSUFFICIENT_GPU = "InsufficientGPU"
    """No node has the GPUs that a pod asks for. Free one, add a node, or use `rollout.strategy: DrainFirst`."""
    LOADING_MODEL = "LoadingModel"
    """Pods load weights and index and warm up; the message names the phase. Wait."""
    MODEL_NOT_FOUND = "ModelNotFound"
    """The model's folder or files are not there; the message names the path. Correct `generator.model` or
    `embedder.model`, or fill the volume."""
    CREDENTIALS_REFUSED = "CredentialsRefused"
    """The hub or the object store will not hand the files over: no token for a gated model, a token or keys that may
    not read them; the message says which. Put the right ones into the Secret that it names: pods try again by
    themselves."""
    SOURCE_UNREACHABLE = "SourceUnreachable"
    """The hub or the object store does not answer; the message has its address and what was seen. Mend the network, the
    proxy or the certificates: it is tried again by itself, from where it stopped."""
    CHECKSUM_MISMATCH = "ChecksumMismatch"
    """A fetched file is not what its checksum says, twice in a row; the message names it. Nothing of it is used. Find
    out what changed it on the way or in the store."""
    NO_SPACE = "NoSpace"
    """There is no room for what has to be fetched; the message says how much is needed and where. Make room, raise
    `placement.cacheMebibytes`, or give `server.cache` a larger claim."""
    START_FAILED = "StartFailed"
    """The server cannot start; the message has its error. Correct what it names."""
    CRASH_LOOP = "CrashLoop"
    """The server starts and ends again and again; the message has the last error."""
    NOT_READY = "NotReady"
    """Pods run and are not ready to answer."""
    PUSHING_CONTENT = "PushingContent"
    """The new content part is being handed to the running pods. Wait."""
    CONTENT_REFUSED = "ContentRefused"
    """A pod refused the new content part; the message has its words; it goes on with the old one."""
    ENGINE_DIFFERS = "EngineDiffers"
    """vLLM changed what it was asked for; the message names field, asked and real value. Ask for the real one, or for
    what lets it be: a card, a backend or a model that can do it."""
    ROLLING_OUT = "RollingOut"
    """A new revision's pods replace the old ones. Wait."""
    DRAINING = "Draining"
    """No room for old and new pods at once: the old ones are stopped first."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The new revision was not ready within `rollout.deadlineSeconds`; what served goes on serving. Correct the spec,
    or apply the old one again."""
    PROBING = "Probing"
    """A pod of the new revision is asked questions before it gets traffic, `rollout.probe`. Wait."""
    PROBE_FAILED = "ProbeFailed"
    """The new revision did not answer the questions that it was asked before it got traffic, or its index finds too
    little; the message has the numbers. No client met it. Correct the spec, or set `tailhold.dev/retry` to the
    revision's name to try it again."""
    JUDGING = "Judging"
    """The new revision has a share of the traffic and is compared with what serves; `status.rollout` has the numbers
    and when a verdict can come. Wait."""
    NO_VERDICT = "NoVerdict"
    """A step had no verdict within its `maxSeconds`, for want of traffic or of metrics; the message says which. With
    `rollout.onUnknown: Hold` it waits on. Send traffic, or decide by hand: `tailhold.dev/promote` or
    `tailhold.dev/abort` with the revision's name."""
    SLO_BROKEN = "SloBroken"
    """The new revision broke an objective, or was worse than what serves, and was taken back; the message has the
    numbers. Correct the spec, or set `tailhold.dev/retry` to the revision's name to try it again."""
    ABORTED = "Aborted"
    """Somebody took the new revision back by `tailhold.dev/abort`. Change the spec, or set `tailhold.dev/retry` to the
    revision's name."""
    NO_WAY_BACK = "NoWayBack"
    """The new revision is not started, since what serves could not be brought back; the message names what is gone.
    Restore it, or take `slo.objectives` away for this rollout."""
    NO_REPLICAS = "NoReplicas"
    """`spec.replicas` is 0: nothing serves because nothing is asked for."""
    POD_REFUSED = "PodRefused"
    """Pods cannot be created, or a node does not admit them: a quota, a policy, a RuntimeClass that is not there, a
    device that is gone; the message has the words of who refused. Correct what they name."""
    APPLY_REFUSED = "ApplyRefused"
    """The API server refused an object that the pipeline needs; the message has its words. Correct the quota, policy
    or right that they name; it is tried again by itself."""
    OBJECTIVES_MET = "ObjectivesMet"
    """No objective is shown to be broken, and there were enough requests to see it. Nothing to do."""
    OBJECTIVE_BROKEN = "ObjectiveBroken"
    """Over the last hour more requests broke an objective than are allowed, and it goes on; the message has the
    numbers. Compare `status.capacity` with the load, look for a slow node or pod, and at what was changed last."""
    TOO_FEW_REQUESTS = "TooFewRequests"
    """The last hour had too few requests to speak of objectives: they are neither kept nor broken. Nothing to do."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    """The pods' counters cannot be read, which is neither good nor bad; the message says which and why. Let the
    operator reach port 8001 of the pods, or mend what `slo.source` names."""
