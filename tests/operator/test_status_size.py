"""A status stays small whatever happens, and is written only when it says something new."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_edits import leaves
from worlds import Stage, spec

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.crd import structural
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts, Inspection
from tailhold_api.memory import memory_sums
from tailhold_api.spec import Spec
from tailhold_api.status import (
    AuditHead,
    CapacityStatus,
    Condition,
    Ended,
    FieldChange,
    ObjectiveStatus,
    PeriodStatus,
    ProbeStatus,
    Progress,
    RevisionStatus,
    RolloutStatus,
    SideStatus,
    SloStatus,
    SnapshotStatus,
    StartPhase,
    Status,
    VerdictStatus,
)
from tailhold_operator import revisions
from tailhold_operator.conditions import fitting, set_conditions, stamp
from tailhold_operator.findings import Finding
from tailhold_operator.judge.verdict import Why
from tailhold_operator.render.identity import identity_of
from tailhold_operator.sides import selector_text
from tailhold_operator.summarise import status_body
from tailhold_operator.testing import Fate

LARGEST = 28 * 1024
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANY = 2**31 - 1
LONGEST_REASON = max(Reason, key=len)

LARGE_MODEL = GeneratorFacts(
    dtype="bfloat16",
    hidden=MANY,
    intermediate=MANY,
    key_value_numbers=MANY,
    layers=MANY,
    parameters=MANY**2,
    vocabulary=MANY,
    weight_bytes=MANY**2,
)
FACTS = Inspection(
    digest="f" * 64, models="f" * 64, generator=LARGE_MODEL, embedder=EmbedderFacts(dimension=MANY, parameters=MANY)
)
MEMORY = memory_sums(
    Spec.model_validate(spec(engine={"kvOffloadMebibytes": 1, "maxBatchedTokens": 1048576})), FACTS, MANY
)


PERIOD = PeriodStatus(requests=MANY, bad=MANY, bad_percent=0.0123)
PROMISE = ObjectiveStatus(
    name="TimeToFirstToken-600000ms",
    percent=99.99,
    broken=True,
    hour=PERIOD,
    five_minutes=PERIOD,
    budget_burned_percent=1e6,
)


def stored_bytes(value: Any) -> int:
    """As the API server writes it: JSON that escapes HTML too."""
    text = json.dumps(value, separators=(",", ":"))
    return len(text) + 5 * sum(map(text.count, "<>&"))


def conditions(message: str) -> tuple[Condition, ...]:
    finding = Finding(False, LONGEST_REASON, message, stalled=True)
    base = [kind for kind in ConditionType if kind not in ("Ready", "Reconciling", "Stalled")]
    return set_conditions((), dict.fromkeys(base, finding), MANY, NOW)


def largest(message: str) -> Status:
    """Everything as long as the operator ever writes it."""
    namespace, name = "n" * 63, "9." + "x" * 251
    metadata = {"name": name, "namespace": namespace, "uid": "0" * 36}
    identity = identity_of({"kind": "RagPipeline", "metadata": metadata})
    digest = "f" * 64
    revision = RevisionStatus(
        name=revisions.revision_name(digest, digest),
        pod_digest=digest,
        content_digest=digest,
        snapshot=digest,
        image="i" * 500,
        ready_replicas=MANY,
    )
    paths = sorted((".".join(path) for path, _ in leaves(structural(Spec))), key=len, reverse=True)
    changed = tuple(FieldChange(path=path, field_class="restart") for path in paths)
    ended = Ended(name=revision.name, reason=LONGEST_REASON, at=stamp(NOW))
    return Status(
        observed_generation=MANY,
        conditions=conditions(message),
        stable=revision,
        candidate=revision,
        weight_percent=100,
        rollout=RolloutStatus(
            revision=revision.name,
            stable=revision.name,
            strategy="DrainFirst",
            strategy_why="w" * 500,
            phase="Promoting",
            step=8,
            steps=8,
            wanted_percent=99,
            since=stamp(NOW),
            probe=ProbeStatus(requests=1000, failed=1000, recall_percent=99.9, message=message[:300]),
            verdict=VerdictStatus(
                answer="Undecided",
                why=max(Why, key=len),
                objective="TimeToFirstToken-600000ms",
                candidate=SideStatus(requests=MANY, bad=MANY, bad_percent=99.9),
                stable=SideStatus(requests=MANY, bad=MANY, bad_percent=99.9),
                needed=MANY,
                earliest=stamp(NOW),
                at=stamp(NOW),
            ),
        ),
        p99_milliseconds=MANY,
        replicas=MANY,
        ready_replicas=MANY,
        replicas_text=f"{MANY}/{MANY}",
        selector=selector_text(identity.selector(**{"tailhold.dev/pod-part": "f" * 10})),
        snapshot=SnapshotStatus(digest=digest, build=digest, documents=MANY, failed_documents=MANY, chunks=MANY),
        memory=MEMORY,
        progress=Progress(step="s" * 64, done=MANY, total=MANY, unit="u" * 32, eta_seconds=MANY),
        last_change=changed[: revisions.MOST_CHANGES],
        phases=(StartPhase(name="p" * 32, began_milliseconds=MANY, milliseconds=MANY, overlapped_milliseconds=MANY),)
        * 12,
        capacity=CapacityStatus(
            pods=MANY,
            requests_per_second=1.2e9,
            requests_per_second_per_pod=1.2e9,
            limited_by="l" * 32,
            prefill_tokens_per_second=MANY,
            decode_tokens_per_second=MANY,
            requests_seen=MANY,
        ),
        slo=SloStatus(source="Prometheus", read_at=stamp(NOW), objectives=(PROMISE,) * 8),
        url=f"http://{identity.child()}.{namespace}.svc/v1",
        audit=(AuditHead(pod="p" * 63, sequence=MANY, hash="f" * 64, at=stamp(NOW)),) * 20,
        ended=(ended,) * 10,
    )


@pytest.mark.parametrize("letter", ["x", "<", "\x01", "\u00e9", "\U0001f600", '"'])
def test_the_largest_status_is_under_28_kib(letter: str) -> None:
    assert stored_bytes(status_body(largest(letter * 100_000))) < LARGEST


@given(st.lists(st.text(max_size=9000), max_size=9))
def test_messages_are_cut_only_where_all_are_too_long(messages: list[str]) -> None:
    cut = fitting(messages)
    assert sum(map(stored_bytes, cut)) <= max(5120, 640 * len(cut))
    for before, after in zip(messages, cut, strict=True):
        assert before == after or (after.endswith("...") and before.startswith(after[:-3]))
    assert fitting(cut) == cut
    if sum(map(stored_bytes, messages)) <= 5120:
        assert all(stored_bytes(each) > 4096 for each, after in zip(messages, cut, strict=True) if each != after)


def test_one_long_message_is_told_at_length() -> None:
    (only, *_) = fitting(["x" * 100_000, "short", ""])
    assert len(only) > 4000


def test_a_pod_that_reports_nonsense_does_not_fill_the_status() -> None:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    report = stage.pods.report

    async def chatty(pod: Any) -> Any:
        told = await report(pod)
        return told and replace(told, phases=told.phases * 1000)

    stage.pods.report = chatty  # type: ignore[method-assign]
    stage.settle()
    assert len(stage.status()["phases"]) == 12


@pytest.mark.parametrize("wrong", [{"snapshot": "5" * 100}, {"snapshot": 5}, {"snapshot": "5" * 64, "chunks": "many"}])
def test_a_result_that_cannot_be_understood_is_a_failed_build(wrong: dict[str, Any]) -> None:
    stage = Stage()
    stage.controllers.result = wrong
    stage.put(spec())
    stage.settle()
    assert stage.condition("IndexLoaded") == ("False", "IndexBuildFailed")


def test_a_refusal_of_any_length_is_remembered_in_bounds() -> None:
    stage = Stage()
    stage.put(spec())
    stage.settle()
    stage.pods.refuses = lambda pod, content: "x" * 2_000_000
    stage.put(spec(retrieval={"topK": 7}))
    stage.settle()
    assert stage.condition("RolledOut") == ("False", "ContentRefused")
    assert len(stage.child("ConfigMap", "history")["data"]["history.json"]) < 50_000
    assert stored_bytes(stage.status()) < LARGEST


EDITS = st.sampled_from(
    [
        spec(),
        spec(replicas=1),
        spec(retrieval={"topK": 3}),
        spec(engine={"blockSizeTokens": 64}),
        spec(paused=True),
        spec(retrieval={"topK": 1000}),
    ]
)
FATES = st.sampled_from(
    [
        Fate(),
        Fate(ready=False),
        Fate(unschedulable="0/1 nodes: Insufficient nvidia.com/gpu."),
        Fate(ready=False, waiting="ImagePullBackOff"),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), EDITS), FATES, st.integers(0, 3)), max_size=12))
def test_a_status_is_written_only_when_it_says_something_new(moves: list[tuple[Any, Fate, int]]) -> None:
    """C15: over random lives, no two statuses in a row are alike."""
    stage = Stage()
    stage.put(spec())
    for body, fate, looks in moves:
        stage.controllers.fate = lambda owner, fate=fate: fate if owner["kind"] == "Deployment" else Fate()
        if body:
            stage.put(body)
        for _ in range(looks):
            _look(stage)
        stage.controllers.run()


def _look(stage: Stage) -> None:
    before, writes = stage.status(), len(stage.cluster.writes)
    stage.step()
    wrote = [each for each in stage.cluster.writes[writes:] if each.startswith("status")]
    assert len(wrote) == (stage.status() != before)
    stage.clock.pass_by(seconds=timedelta(seconds=5).total_seconds())
