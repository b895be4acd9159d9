"""A status with all its fields."""

from tailhold_api.status import (
    AuditHead,
    CapacityStatus,
    Condition,
    Ended,
    FieldChange,
    ProbeStatus,
    Progress,
    RevisionStatus,
    RolloutStatus,
    SideStatus,
    SnapshotStatus,
    StartPhase,
    Status,
    VerdictStatus,
)


def full_status() -> Status:
    revision = RevisionStatus(
        name="a-b",
        pod_digest="a" * 64,
        content_digest="b" * 64,
        snapshot="c" * 64,
        image="i",
        ready_replicas=2,
    )
    condition = Condition(
        type="Ready", status="True", observed_generation=1, last_transition_time="2026-01-01T00:00:00Z",
        reason="Reconciled", message="m",
    )  # fmt: skip
    return Status(
        observed_generation=1,
        conditions=(condition, condition.model_copy(update={"type": "Accepted"})),
        stable=revision,
        candidate=revision.model_copy(update={"name": "c-d"}),
        weight_percent=5,
        rollout=RolloutStatus(
            revision="c-d",
            stable="a-b",
            strategy="Surge",
            strategy_why="w",
            phase="Stepping",
            step=1,
            steps=3,
            wanted_percent=5,
            since="2026-01-01T00:00:00Z",
            probe=ProbeStatus(requests=20, failed=1, recall_percent=99.5, message="m"),
            verdict=VerdictStatus(
                answer="Undecided",
                why="InsufficientSamples",
                objective="EndToEnd-500ms",
                candidate=SideStatus(requests=100, bad=1, bad_percent=1.0),
                stable=SideStatus(requests=1900, bad=19, bad_percent=1.0),
                needed=900,
                earliest="2026-01-01T00:10:00Z",
                at="2026-01-01T00:01:00Z",
            ),
        ),
        p99_milliseconds=120,
        replicas=2,
        ready_replicas=1,
        replicas_text="1/2",
        selector="a=b",
        snapshot=SnapshotStatus(digest="d", build="e", documents=1, failed_documents=2, chunks=3),
        progress=Progress(step="embed", done=1, total=2, unit="chunks", eta_seconds=3),
        last_change=(FieldChange(path="retrieval.topK", field_class="live"),),
        phases=(StartPhase(name="startEngine", began_milliseconds=1, milliseconds=2, overlapped_milliseconds=1),),
        capacity=CapacityStatus(
            pods=2,
            requests_per_second=9.5,
            requests_per_second_per_pod=4.8,
            limited_by="engine",
            prefill_tokens_per_second=4000,
            decode_tokens_per_second=900,
            requests_seen=100,
        ),
        url="http://a.b.svc/v1",
        audit=(AuditHead(pod="p", sequence=1, hash="e" * 64, at="2026-01-01T00:00:00Z"),),
        ended=(Ended(name="x", reason="Replaced", at="2026-01-01T00:00:00Z"),),
    )
