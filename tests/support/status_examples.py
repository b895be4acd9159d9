"""A status with all its fields."""

from tailhold_api.status import (
    AuditHead,
    CapacityStatus,
    Condition,
    Ended,
    FieldChange,
    ObjectiveStatus,
    PeriodStatus,
    Progress,
    RevisionStatus,
    SloStatus,
    SnapshotStatus,
    StartPhase,
    Status,
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
        slo=SloStatus(
            source="Pods",
            read_at="2026-01-01T00:00:00Z",
            objectives=(
                ObjectiveStatus(
                    name="EndToEnd-900ms",
                    percent=99,
                    broken=True,
                    hour=PeriodStatus(requests=1000, bad=20, bad_percent=2),
                    five_minutes=PeriodStatus(requests=100, bad=2, bad_percent=2),
                    budget_burned_percent=200,
                ),
            ),
        ),
        url="http://a.b.svc/v1",
        audit=(AuditHead(pod="p", sequence=1, hash="e" * 64, at="2026-01-01T00:00:00Z"),),
        ended=(Ended(name="x", reason="Replaced", at="2026-01-01T00:00:00Z"),),
    )
