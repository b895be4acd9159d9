"""From one look at a pipeline to all that is to be done about it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailhold_api import codec
from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.handover import Handover
from tailhold_api.parts import SHORT, ContentPart
from tailhold_api.rollout import Probe
from tailhold_api.slo import Objectives
from tailhold_operator.assessment import Case, Findings, assess_all
from tailhold_operator.conditions import refused
from tailhold_operator.content import Spread, spread
from tailhold_operator.desire import Around, desire, image_of, inspection_of, lacks, template_of
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.handing import Handing, handings, handover_to
from tailhold_operator.history import Failure, History
from tailhold_operator.indexing import Building, assess, pinned
from tailhold_operator.inspecting import Inspecting, judged, proven
from tailhold_operator.inspecting import assess as assess_inspection
from tailhold_operator.judge.verdict import Verdict
from tailhold_operator.keeping import Kept, kept, said_of
from tailhold_operator.objectives import Telling, tellings
from tailhold_operator.observe import NOTHING, Pod, Seen, inspections_of, jobs_of, pods_of
from tailhold_operator.parsing import read_history, read_spec, read_status, rebuild_mark
from tailhold_operator.plan import Apply, Delete, Merge, plan
from tailhold_operator.render.config import ANNOTATION_DIGEST
from tailhold_operator.render.front import served_part
from tailhold_operator.revisions import Asked, Target, content_by_digest, noted, target_of
from tailhold_operator.rollout.advance import advance, stand_still
from tailhold_operator.rollout.commands import read_commands
from tailhold_operator.rollout.view import POLL, REPEAT, Side, Step, View
from tailhold_operator.sides import confirming, leaving, sides_of, takers
from tailhold_operator.staging import LOOK, Staged, stage

SOON = timedelta(seconds=1)


@dataclass(frozen=True)
class Push:
    """Hand a running pod its content."""

    pod: Pod
    content: ContentPart
    revision: str
    """The revision that is given up if the pod refuses."""


@dataclass(frozen=True)
class Probing:
    """Ask a candidate pod questions of ours."""

    pod: Pod
    revision: str
    probe: Probe


@dataclass(frozen=True)
class Decision:
    """What is to be done, and what is to be said."""

    writes: tuple[Apply | Merge | Delete, ...]
    pushes: tuple[Push, ...]
    history: History
    findings: Findings
    building: Building | None = None
    inspecting: Inspecting | None = None
    target: Target | None = None
    asked: Asked | None = None
    sides: Mapping[str, Side] | None = None
    serving: str | None = None
    wait: timedelta | None = None
    tellings: tuple[Telling, ...] = ()
    handings: tuple[Handing, ...] = ()
    probing: Probing | None = None
    verdict: Verdict | None = None
    """What is known of the candidate, where it is judged."""
    promises: Kept | None = None


def decide(seen: Seen, around: Around, now: datetime) -> Decision:
    """Everything about one pipeline."""
    history = read_history(seen.find("ConfigMap", around.identity.child("history")))
    spec = read_spec(seen.pipeline)
    if not isinstance(spec, str):
        staged = stage(seen, around.identity.name, spec, rebuild_mark(seen.pipeline), history, now)
        decision = _decide(seen, staged, around, now)
        return _paused(_frozen(decision, seen, history)) if spec.paused else decision
    if history.spec is None:
        return Decision((), (), history, dict.fromkeys(_NOTHING_SERVES, refused(spec)))
    last = stage(seen, around.identity.name, history.spec, rebuild_mark(seen.pipeline), history, now)
    return _refused(_frozen(_decide(seen, last, around, now), seen, history), refused(spec))


_NOTHING_SERVES = (
    ConditionType.ACCEPTED,
    ConditionType.INDEX_LOADED,
    ConditionType.MODEL_LOADED,
    ConditionType.AVAILABLE,
    ConditionType.ROLLED_OUT,
)


def refuse_content(history: History, push: Push, words: str, at: str) -> History:
    """Remember that a pod would not take a content: what it runs on stays."""
    message = f"pod {push.pod.name} refused the content: {words}"
    return history.with_failure(
        Failure(name=push.revision, reason=Reason.CONTENT_REFUSED.value, message=message, at=at)
    )


def _decide(seen: Seen, staged: Staged, around: Around, now: datetime) -> Decision:
    pods, asked = pods_of(seen), staged.asked
    history = noted(staged.history, asked.spec)
    building = _building(seen, asked, history, pods)
    if asked.build and building.snapshot and not history.snapshot_of(asked.build_digest):
        history = history.with_snapshot(building.snapshot)
    inspecting = _inspecting(seen, asked, building, history, around)
    if inspecting.found:
        history = history.with_inspection(inspecting.found)
    target = _target(seen, asked, building, around) if inspecting.finding.holds else None
    sides = sides_of(seen, pods, target.status if target else None, asked.pod.placement.gpu.resource_name)
    serving = _serving(seen, asked, history, around)
    going = leaving(pods, (serving, asked.pod_digest[:SHORT]), now)
    step = _step(seen, asked, target, serving, sides, history, going, around, now)
    contents = _contents(seen, step, target, around)
    pushes = tuple(_pushes(seen, pods, contents, target))
    wanted = desire(seen, asked, target, building, staged.refresh, inspecting, step, contents, around)
    writes = plan(wanted.manifests, seen.children, wanted.kept)
    case = Case(
        asked,
        target,
        building,
        inspecting,
        step,
        sides,
        pods,
        seen.reports,
        serving,
        _is_pushing(contents, asked, target) and step.history.trial is None,
    )
    told = tellings(pods, seen.reports, Objectives(objectives=asked.spec.slo.objectives))
    probing = _probing(seen, pods, step, target, asked)
    wait = _wait(step, staged, building, inspecting, (*pushes, *told, probing))
    handed = handings(pods, step.serving, seen.reports, _handover(seen, pods, asked, target, step.weight))
    promises = kept(said_of(read_status(seen.pipeline)), asked.spec.slo, seen.watched, now, sampled=seen.sampled)
    findings = {**assess_all(case), **({ConditionType.SLO_MET: promises.finding} if promises else {})}
    return Decision(
        writes,
        pushes,
        step.history,
        findings,
        building,
        inspecting,
        target,
        asked,
        sides,
        serving,
        wait,
        told,
        handed,
        probing,
        step.verdict,
        promises,
    )


def _handover(seen: Seen, pods: tuple[Pod, ...], asked: Asked, target: Target | None, weight: int) -> Handover:
    if target is None:
        return NOTHING
    ready = confirming(pods, seen.reports, target.status)
    return handover_to(ready, target.status.name, weight, asked.spec.slo)


def _probing(seen: Seen, pods: tuple[Pod, ...], step: Step, target: Target | None, asked: Asked) -> Probing | None:
    ready = confirming(pods, seen.reports, target.status) if step.probes and target else ()
    return Probing(ready[0], target.status.name, asked.spec.rollout.probe) if ready and target else None


def _building(seen: Seen, asked: Asked, history: History, pods: tuple[Pod, ...]) -> Building:
    given = asked.spec.index.snapshot
    if given:
        return pinned(given.digest)
    known = history.snapshot_of(asked.build_digest)
    return assess(asked.build_digest, known, jobs_of(seen), pods, seen.progress)


def _serving(seen: Seen, asked: Asked, history: History, around: Around) -> str | None:
    """The pod part in front. A Service that is gone, or was turned to nothing of ours, is put right."""
    named = served_part(seen.find("Service", around.identity.child()))
    if not history.revisions:
        return named
    tried = history.candidate.pod_digest[:SHORT] if history.candidate else None
    if named and (history.served(named) or named in (tried, asked.pod_digest[:SHORT])):
        return named
    return history.revisions[0].pod_digest[:SHORT]


def _inspecting(seen: Seen, asked: Asked, building: Building, history: History, around: Around) -> Inspecting:
    part = inspection_of(seen, asked, around)
    digest = codec.digest(part)
    snapshot = building.snapshot
    chunks = (snapshot.chunks or None) if snapshot else None
    known = history.inspection_of(digest)
    inspecting = assess_inspection(digest, known, inspections_of(seen), pods_of(seen))
    if history.proves(asked.pod_digest, snapshot.digest if snapshot else None):
        return proven(inspecting, asked.spec, chunks)
    return judged(inspecting, asked.spec, chunks)


def _target(seen: Seen, asked: Asked, building: Building, around: Around) -> Target | None:
    if building.snapshot is None:
        return None
    template = template_of(seen, asked, around, asked.pod_digest[:SHORT])
    return target_of(asked, building.snapshot, image_of(template) if template else "")


def _step(
    seen: Seen,
    asked: Asked,
    target: Target | None,
    serving: str | None,
    sides: Mapping[str, Side],
    history: History,
    going: int,
    around: Around,
    now: datetime,
) -> Step:
    replicas = asked.spec.replicas
    if target is None:
        return stand_still(serving, replicas, history, now)
    view = View(
        target.status,
        serving,
        sides,
        history,
        replicas,
        asked.spec.rollout,
        going,
        asked.spec.slo,
        seen.watched,
        read_commands(seen.pipeline),
        lacks(seen, history, around),
    )
    return advance(view, now)


def _contents(seen: Seen, step: Step, target: Target | None, around: Around) -> dict[str, Spread]:
    """For each pod part with pods, what they are to run on."""
    found = {part: _content(seen, part, step, target, around) for part in step.replicas}
    return {part: each for part, each in found.items() if each}


def _content(seen: Seen, part: str, step: Step, target: Target | None, around: Around) -> Spread | None:
    mounted = _mounted(seen, part, around)
    served = step.history.served(part)
    before = served.content_digest if served else None
    pods = takers(pods_of(seen), part, seen.reports)
    if target is None or part != target.status.pod_digest[:SHORT]:
        wanted = before or mounted
        return spread(wanted, wanted, None, pods, refused=False) if wanted else None
    failed = step.history.failed(target.status.name) is not None
    serves = part == step.serving and before is not None
    wanted = target.status.content_digest
    return spread(wanted, mounted if serves else wanted, before, pods, refused=failed, to_one=step.to_one)


def _mounted(seen: Seen, part: str, around: Around) -> str | None:
    """The content that is mounted, where it is still one that is known."""
    config = seen.find("ConfigMap", around.identity.child(part, "content"))
    digest = (((config or {}).get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_DIGEST)
    return str(digest) if digest else None


def _pushes(seen: Seen, pods: tuple[Pod, ...], contents: Mapping[str, Spread], target: Target | None) -> list[Push]:
    by_name = {pod.name: pod for pod in pods}
    pushes = []
    for each in contents.values():
        content = content_by_digest(seen, each.give, target) if each.push else None
        revision = target.status.name if target and each.give == target.status.content_digest else ""
        pushes += [Push(by_name[name], content, revision) for name in each.push if content]
    return pushes


def _is_pushing(contents: Mapping[str, Spread], asked: Asked, target: Target | None) -> bool:
    mine = contents.get(asked.pod_digest[:SHORT])
    return bool(target and mine and (mine.push or mine.mount != target.status.content_digest))


def _wait(
    step: Step,
    staged: Staged,
    building: Building,
    inspecting: Inspecting,
    acts: tuple[Push | Telling | Probing | None, ...],
) -> timedelta | None:
    waits = [step.wait] if step.wait else []
    waits += [POLL if staged.refresh else LOOK] if staged.asked.spec.uploads else []
    waits += [POLL] if not inspecting.finding.holds and not inspecting.finding.stalled else []
    waits += [POLL] if not building.snapshot and not building.finding.stalled else []
    waits += [SOON] if any(acts) else []
    return min(waits, default=None)


def _frozen(decision: Decision, seen: Seen, history: History) -> Decision:
    """Nothing is changed, so the weight that was said is said again: without that it would change by itself."""
    trial, target, asked = history.trial, decision.target, decision.asked
    if trial is None or target is None or asked is None or trial.revision != target.status.name:
        return replace(decision, handings=(), probing=None)
    pods = pods_of(seen)
    wanted = _handover(seen, pods, asked, target, trial.weight)
    handed = handings(pods, decision.serving, seen.reports, wanted)
    return replace(decision, handings=handed, probing=None, wait=REPEAT if handed else decision.wait)


def _paused(decision: Decision) -> Decision:
    """Nothing is changed; what would be is said."""
    pending = bool(decision.pushes) or any(not _is_note(write) for write in decision.writes)
    paused = waiting(Reason.PAUSED, "`paused` is true: nothing is changed")
    findings = dict(decision.findings)
    if pending or not findings[ConditionType.ROLLED_OUT].holds:
        findings[ConditionType.ROLLED_OUT] = paused
    if decision.inspecting and decision.inspecting.needs_job:
        findings[ConditionType.ACCEPTED] = paused
    if _is_unstarted(decision):
        loads = (ConditionType.INDEX_LOADED, ConditionType.MODEL_LOADED)
        findings |= {kind: paused for kind in loads if not findings[kind].holds and not findings[kind].stalled}
    return _without_acts(decision, findings)


def _is_unstarted(decision: Decision) -> bool:
    """Whether a pause holds up the very beginning: no Job or no pods of what is asked for."""
    jobs = (decision.inspecting, decision.building)
    if any(each.needs_job for each in jobs if each):
        return True
    target = decision.target
    return target is not None and target.status.pod_digest[:SHORT] not in (decision.sides or {})


def _is_note(write: Apply | Merge | Delete) -> bool:
    """Whether a write only remembers something."""
    return isinstance(write, Apply) and write.manifest["metadata"]["name"].endswith("-history")


def _refused(decision: Decision, finding: Finding) -> Decision:
    """The last good spec is what is looked at, and nothing is touched."""
    findings = dict(decision.findings)
    findings[ConditionType.ACCEPTED] = finding
    findings[ConditionType.ROLLED_OUT] = stuck(finding.reason, "the newest spec is refused; see Accepted")
    return _without_acts(decision, findings)


def _without_acts(decision: Decision, findings: Findings) -> Decision:
    return replace(decision, writes=(), pushes=(), tellings=(), findings=findings)
