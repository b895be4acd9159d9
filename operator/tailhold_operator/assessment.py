"""Each condition's finding, from what was seen and decided."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.engine import Engine
from tailhold_api.parts import SHORT
from tailhold_operator.findings import FINE, Finding, stuck, waiting
from tailhold_operator.indexing import Building
from tailhold_operator.inspecting import Inspecting
from tailhold_operator.observe import Pod, Report
from tailhold_operator.revisions import Asked, Target
from tailhold_operator.rollout.view import Side, Step
from tailhold_operator.sides import answers

_OF_INDEX = (Reason.SNAPSHOT_REFUSED, Reason.CONTENT_REFUSED)
_SEE_ACCEPTED = "no pod of the newest revision is started yet; see Accepted"
Findings = Mapping[ConditionType, Finding]


@dataclass(frozen=True)
class Case:
    """What is judged."""

    asked: Asked
    target: Target | None
    building: Building
    inspecting: Inspecting
    step: Step
    sides: Mapping[str, Side]
    pods: tuple[Pod, ...]
    reports: Mapping[str, Report]
    serving: str | None
    """What the Service sent to when it was looked at."""
    pushing: bool
    """Whether running pods are still to be given their content."""

    @property
    def told(self) -> tuple[Report, ...]:
        """What the ready pods of the pod part that is asked for say."""
        part = self.asked.pod_digest[:SHORT]
        own = (pod for pod in self.pods if pod.pod_part == part and answers(pod))
        return tuple(self.reports[pod.name] for pod in own if pod.name in self.reports)

    @property
    def fresh(self) -> Side | None:
        """The pods that are asked for."""
        return self.sides.get(self.asked.pod_digest[:SHORT])


def assess_all(case: Case) -> Findings:
    """All conditions but the summaries."""
    matches = _engine_matches(case)
    return {
        ConditionType.ACCEPTED: case.inspecting.finding,
        ConditionType.INDEX_LOADED: _index_loaded(case),
        ConditionType.MODEL_LOADED: _model_loaded(case),
        ConditionType.AVAILABLE: _available(case),
        ConditionType.ROLLED_OUT: _rolled_out(case),
        **({ConditionType.ENGINE_MATCHES_SPEC: matches} if matches else {}),
    }


def _index_loaded(case: Case) -> Finding:
    if case.building.needs_job and not case.inspecting.finding.holds:
        return waiting(_held_by(case.inspecting), "no index is built yet; see Accepted")
    if case.target is None and not case.building.finding.holds:
        return case.building.finding
    if case.target is None:
        return waiting(Reason.WAITING_FOR_PODS, _SEE_ACCEPTED)
    wanted = case.target.status.snapshot
    if any(report.snapshot == wanted for report in case.told):
        return FINE
    if case.told and not case.step.outcome.stalled:
        return waiting(Reason.PUSHING_CONTENT, f"the pods are being given snapshot {wanted[:SHORT]}")
    return _not_loaded(case, ConditionType.INDEX_LOADED)


def _model_loaded(case: Case) -> Finding:
    if case.target is None and not case.inspecting.finding.holds:
        return waiting(_held_by(case.inspecting), _SEE_ACCEPTED)
    if case.target is None:
        return Finding(False, Reason.WAITING_FOR_INDEX, case.building.finding.message, case.building.finding.stalled)
    if any(report.pod_digest == case.target.status.pod_digest for report in case.told):
        return FINE
    return _not_loaded(case, ConditionType.MODEL_LOADED)


def _not_loaded(case: Case, kind: ConditionType) -> Finding:
    """Why no pod runs what is asked for; a failure of the one is none of the other."""
    if not case.asked.spec.replicas:
        return waiting(Reason.NO_REPLICAS, "`replicas` is 0")
    if case.step.outcome.stalled and (case.step.outcome.reason in _OF_INDEX) != (kind is ConditionType.INDEX_LOADED):
        return waiting(Reason.WAITING_FOR_PODS, "no pod of the newest revision runs; see RolledOut")
    if case.step.outcome.stalled or case.fresh is None:
        return case.step.outcome if not case.step.outcome.holds else waiting(Reason.WAITING_FOR_PODS)
    return case.fresh.trouble


def _engine_matches(case: Case) -> Finding | None:
    """None where no pod of the newest revision says what its engine runs with."""
    told = [report.engine for report in case.told if report.engine and report.pod_digest == case.asked.pod_digest]
    if not told:
        return None
    differs = sorted({line for engine in told for line in differences(case.asked.pod.engine, engine)})
    return waiting(Reason.ENGINE_DIFFERS, "; ".join(differs)) if differs else FINE


def differences(asked: Engine, engine: Mapping[str, Any]) -> tuple[str, ...]:
    """Each field whose real value is another one than was asked for; what was left to vLLM cannot differ."""
    wanted = asked.model_dump(mode="json", by_alias=True, exclude_none=True)
    return tuple(
        f"`engine.{name}` is asked to be {json.dumps(value)} and is {json.dumps(engine[name])}"
        for name, value in wanted.items()
        if name in engine and engine[name] != value
    )


def _held_by(inspecting: Inspecting) -> Reason:
    return inspecting.finding.reason if inspecting.finding.stalled else Reason.INSPECTING


def _available(case: Case) -> Finding:
    side = case.sides.get(case.serving or "")
    if side and side.ready:
        return FINE
    if not case.asked.spec.replicas:
        return waiting(Reason.NO_REPLICAS, "`replicas` is 0")
    if side is None:
        return waiting(Reason.NOT_READY, "no pods serve yet")
    return side.trouble if side.wanted else waiting(Reason.DRAINING, "the old pods made room for the new ones")


def _rolled_out(case: Case) -> Finding:
    if case.target is None and not case.inspecting.finding.holds:
        stalled = case.inspecting.finding.stalled
        return Finding(False, _held_by(case.inspecting), _SEE_ACCEPTED, stalled)
    if case.target is None:
        finding = case.building.finding
        return (
            stuck(finding.reason, finding.message)
            if finding.stalled
            else waiting(Reason.WAITING_FOR_INDEX, finding.message)
        )
    if case.pushing and not case.step.outcome.stalled:
        return waiting(Reason.PUSHING_CONTENT, "the pods are being given the new content")
    return case.step.outcome
