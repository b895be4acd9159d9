"""Ends of the pods' chains of audit records are kept in the status, where who can write the claim cannot write."""

from hypothesis import given
from hypothesis import strategies as st
from spec_examples import merged
from worlds import Stage, spec

from tailhold_api.status import AuditHead
from tailhold_operator.audit import audit_heads
from tailhold_operator.observe import ChainHead, Report, Seen
from tailhold_operator.pods import _report

SINK = {"audit": {"sink": {"pvc": {"claimName": "audit", "path": "answers"}}}}


def seen(told: dict[str, int], *, sampled: bool = True) -> Seen:
    reports = {pod: Report("", "", "", audit=ChainHead(at, f"{at:064x}")) for pod, at in told.items()}
    return Seen({}, {}, reports=reports, sampled=sampled)


@given(st.lists(st.dictionaries(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), st.integers(1, 99), max_size=26)))
def test_heads_only_grow_and_are_bounded(looks: list[dict[str, int]]) -> None:
    heads: tuple[AuditHead, ...] = ()
    for at, told in enumerate(looks):
        before = {head.pod: head.sequence for head in heads}
        heads = audit_heads(heads, seen(told), f"2026-01-01T00:00:{at:02}Z")
        after = {head.pod: head.sequence for head in heads}
        assert len(after) == len(heads) <= 20
        assert all(after[pod] >= before[pod] for pod in after if pod in before)
        assert all(after[pod] == max(told.get(pod, 0), before.get(pod, 0)) for pod in after)


def test_a_look_that_is_no_sample_writes_nothing_new() -> None:
    assert audit_heads((), seen({"a": 5}, sampled=False), "now") == ()


def test_a_pod_that_has_lost_records_keeps_the_head_that_shows_it() -> None:
    first = audit_heads((), seen({"a": 5}), "then")
    assert audit_heads(first, seen({"a": 2}), "now") == first


def test_what_a_pod_tells_is_believed_only_in_its_form() -> None:
    for told in (None, {}, {"sequence": "1", "hash": "f" * 64}, {"sequence": 0, "hash": "f" * 64}, {"sequence": 1}):
        assert _report({"audit": told}).audit is None
    assert _report({"audit": {"sequence": 3, "hash": "f" * 64}}).audit == ChainHead(3, "f" * 64)


def test_a_sink_is_mounted_writable_and_all_else_is_not() -> None:
    stage = Stage()
    stage.put(spec(**SINK))
    stage.settle()
    pod = stage.cluster.of_kind("Deployment")[0]["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in pod["containers"][0]["volumeMounts"]}
    claims = {path: only for path, only in mounts.items() if path.startswith("/var/lib/tailhold/claims/")}
    assert claims.pop("/var/lib/tailhold/claims/audit") is False
    assert claims
    assert all(claims.values())
    (audit,) = (each for each in pod["volumes"] if each.get("persistentVolumeClaim", {}).get("claimName") == "audit")
    assert "readOnly" not in audit["persistentVolumeClaim"]


def test_heads_come_into_the_status_at_the_seldom_looks() -> None:
    stage = Stage()
    stage.put(spec(**SINK))
    stage.settle()
    pod = next(each["metadata"]["name"] for each in stage.cluster.of_kind("Pod") if "pod-part" in str(each["metadata"]))
    stage.pods.audit[pod] = ChainHead(7, "a" * 64)
    stage.settle()
    assert "audit" not in stage.status()
    stage.step(sample=True)
    assert [(each["pod"], each["sequence"]) for each in stage.status()["audit"]] == [(pod, 7)]
    stage.settle()
    assert stage.status()["audit"][0]["hash"] == "a" * 64


def test_records_alone_restart_nothing() -> None:
    stage = Stage()
    stage.put(spec(**SINK))
    stage.settle()
    before = {each["metadata"]["name"] for each in stage.cluster.of_kind("Deployment")}
    stage.put(spec(**merged(SINK, {"audit": {"records": "Texts", "retentionDays": 30}})))
    stage.settle()
    assert {each["metadata"]["name"] for each in stage.cluster.of_kind("Deployment")} == before
    assert all(part.recording.retention_days == 30 for part in stage.pods.content.values())
