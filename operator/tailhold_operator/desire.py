"""All objects that a step of a pipeline wants to be there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailhold_api import codec, names
from tailhold_api.inspection import InspectionPart, inspection_part
from tailhold_api.parts import SHORT, BuildPart
from tailhold_operator.content import Spread
from tailhold_operator.history import History
from tailhold_operator.indexing import Building, surplus
from tailhold_operator.inspecting import Inspecting
from tailhold_operator.kinds import Manifest, Ref, label_of, ref_of
from tailhold_operator.observe import Seen, is_over, jobs_of, pods_of
from tailhold_operator.render import config, front
from tailhold_operator.render.identity import Identity
from tailhold_operator.render.index import JobMeans, render_job
from tailhold_operator.render.inspection import render_inspection_job
from tailhold_operator.render.server import render_deployment, render_template
from tailhold_operator.render.setup import Setup
from tailhold_operator.revisions import Asked, Target, content_by_digest, kept_configs
from tailhold_operator.rollout.view import Step
from tailhold_operator.sides import turned_away
from tailhold_operator.staging import Refresh


@dataclass(frozen=True)
class Desire:
    """What has to be there, in the order to write it, and what may stay."""

    manifests: tuple[Manifest, ...]
    kept: frozenset[Ref]


@dataclass(frozen=True)
class Around:
    """What every object is rendered with."""

    identity: Identity
    setup: Setup
    public_key: str


def template_of(seen: Seen, asked: Asked, around: Around, part: str) -> Manifest | None:
    """The pod template of a pod part: the one that was kept with it, or a new one for what is asked for.

    A lost ConfigMap is made again from the Deployment, so that the pods that run do not change.
    """
    identity = around.identity
    kept = config.read_template(seen.find("ConfigMap", identity.child("pod", part)))
    if kept or part != asked.pod_digest[:SHORT]:
        return kept
    running = seen.find("Deployment", identity.child(part))
    return running["spec"]["template"] if running else render_template(asked.pod, identity, around.setup)


def lacks(seen: Seen, history: History, around: Around) -> str:
    """What a rollback to the last revision that was found good would not find; empty where all is there."""
    back = history.proven
    if back is None:
        return ""
    pod = around.identity.child("pod", back.pod_digest[:SHORT])
    if config.read_template(seen.find("ConfigMap", pod)) is None:
        return f"the ConfigMap {pod} of revision {back.name} is gone or cannot be read"
    if content_by_digest(seen, back.content_digest, None) is None:
        return f"the ConfigMap with the content of revision {back.name} is gone or cannot be read"
    return ""


def image_of(template: Manifest) -> str:
    """The server's image."""
    return str(template["spec"]["containers"][0]["image"])


def inspection_of(seen: Seen, asked: Asked, around: Around) -> InspectionPart:
    """What has to be looked at before the pods that are asked for are started."""
    template = template_of(seen, asked, around, asked.pod_digest[:SHORT])
    return inspection_part(asked.pod, image_of(template) if template else "")


def desire(
    seen: Seen,
    asked: Asked,
    target: Target | None,
    building: Building,
    refresh: Refresh | None,
    inspecting: Inspecting,
    step: Step,
    contents: Mapping[str, Spread],
    around: Around,
) -> Desire:
    """Everything, from what was decided about index, pods and content."""
    identity = around.identity
    always = (config.render_history(step.history, identity), config.render_key(around.public_key, identity))
    inspection = _inspection(seen, asked, inspecting, around)
    # No hours go into an index for models that turn out not to be there, or not to fit.
    index = _index(asked, building, refresh, step.history, around) if inspecting.finding.holds else ()
    revision = _revision(seen, asked, target, around)
    mounted = [_mounted(seen, part, each, target, identity) for part, each in contents.items()]
    pods = [each for part, count in step.replicas.items() if (each := _deployment(seen, asked, around, part, count))]
    jobs = (each for each in (*inspection, *index) if each["kind"] == "Job")
    account = _account(seen, asked, (*jobs, *pods), identity)
    front_door = _front_door(seen, asked, around, step.serving) if step.serving else ()
    before = (*account, *always, *inspection, *index, *revision, *mounted)
    manifests = (*before, *front_door, *pods)
    return Desire(
        tuple(each for each in manifests if each),
        _kept(seen, asked, target, building, refresh, inspecting, step, around),
    )


def _front_door(seen: Seen, asked: Asked, around: Around, serving: str) -> tuple[Manifest, ...]:
    template = template_of(seen, asked, around, serving)
    return front.render_service(around.identity, serving, template), front.render_budget(around.identity)


def _inspection(seen: Seen, asked: Asked, inspecting: Inspecting, around: Around) -> tuple[Manifest, ...]:
    if not inspecting.needs_job:
        return ()
    part = inspection_of(seen, asked, around)
    job = render_inspection_job(part, asked.pod, around.identity, around.setup)
    return config.render_inspection_config(part, around.identity), job


def _account(seen: Seen, asked: Asked, wanted: Iterable[Manifest], identity: Identity) -> tuple[Manifest, ...]:
    """Our own account, where none is given, or as long as pods of before are it."""
    account, given = identity.child(), asked.pod.pod.service_account_name
    if given == account and not seen.find("ServiceAccount", account):
        return ()  # somebody's own that has the name of ours
    jobs = (each for each in seen.of_kind("Job") if not is_over(each))
    templates = (each["spec"]["template"]["spec"] for each in (*wanted, *seen.of_kind("Deployment"), *jobs))
    is_used = any(each.get("serviceAccountName") == account for each in templates)
    return (front.render_account(identity),) if is_used or not given else ()


def _index(
    asked: Asked, building: Building, refresh: Refresh | None, history: History, around: Around
) -> tuple[Manifest, ...]:
    builds = [(asked.build, building), *([(refresh.part, refresh.building)] if refresh else [])]
    wanted = (_build(part, asked, history, around) for part, each in builds if part and each.needs_job)
    return tuple(each for manifests in wanted for each in manifests)


def _build(part: BuildPart, asked: Asked, history: History, around: Around) -> tuple[Manifest, Manifest]:
    image = asked.spec.server.image or around.setup.image
    index = asked.spec.index
    means = JobMeans(
        image,
        index.build_memory_mebibytes,
        index.build_millicores,
        index.keep_snapshots,
        history.snapshots_in_use(),
        asked.spec.pod,
        asked.spec.server.cache,
    )
    job = render_job(part, codec.digest(part)[:SHORT], around.identity, around.setup, means)
    return config.render_build_config(part, around.identity), job


def _revision(seen: Seen, asked: Asked, target: Target | None, around: Around) -> tuple[Manifest, ...]:
    """ConfigMaps of the revision that is asked for. The pod part's is written once, with its template."""
    if target is None:
        return ()
    content = config.render_content_config(target.content, around.identity)
    part = asked.pod_digest[:SHORT]
    if seen.find("ConfigMap", around.identity.child("pod", part)):
        return (content,)
    template = template_of(seen, asked, around, part) or {}
    return content, config.render_pod_config(asked.pod, template, around.identity)


def _mounted(seen: Seen, part: str, spread: Spread, target: Target | None, identity: Identity) -> Manifest | None:
    content = content_by_digest(seen, spread.mount, target)
    return config.render_mounted_content(content, part, identity) if content else None


def _deployment(seen: Seen, asked: Asked, around: Around, part: str, replicas: int) -> Manifest | None:
    template = template_of(seen, asked, around, part)
    return render_deployment(around.identity, part, template, replicas) if template else None


def _kept(
    seen: Seen,
    asked: Asked,
    target: Target | None,
    building: Building,
    refresh: Refresh | None,
    inspecting: Inspecting,
    step: Step,
    around: Around,
) -> frozenset[Ref]:
    """Besides what is wanted: history, the last Jobs, and what cannot be rendered again but is in use."""
    identity = around.identity
    parts = {*step.replicas, step.serving} - {""}
    tried = [each for each in (target.status if target else None, step.history.candidate) if each]
    kept = kept_configs(seen, step.history, tried, parts)
    in_use = {name for part in parts for name in (identity.child(part), identity.child(part, "content"))}
    kept |= {ref for ref in seen.children if ref.name in in_use}
    refused = {pod.name for pod in turned_away(pods_of(seen))}
    kept |= {ref for ref in seen.children if ref.kind == "Pod" and ref.name not in refused}
    kept |= {ref for ref in seen.children if ref.kind in ("Service", "PodDisruptionBudget") and not step.serving}
    return frozenset(
        kept | _kept_index(seen, asked, building, refresh) | _kept_inspection(seen, asked, inspecting, around)
    )


def _kept_inspection(seen: Seen, asked: Asked, inspecting: Inspecting, around: Around) -> set[Ref]:
    """The Job that runs for what is asked for; one whose result is remembered, or is not waited for, goes."""
    if inspecting.found or inspecting.discard or inspecting.finding.holds:
        return set()
    short = codec.digest(inspection_of(seen, asked, around))[:SHORT]
    jobs = (each for each in seen.of_kind("Job") if label_of(each, names.LABEL_INSPECTION) == short)
    configs = (each for each in seen.of_kind("ConfigMap") if label_of(each, config.LABEL_PART) == "inspection")
    return {
        ref_of(each) for each in (*jobs, *(each for each in configs if label_of(each, config.LABEL_DIGEST) == short))
    }


def _kept_index(seen: Seen, asked: Asked, building: Building, refresh: Refresh | None) -> set[Ref]:
    current = asked.build_digest[:SHORT]
    wanted = {current: building} | ({refresh.short: refresh.building} if refresh else {})
    gone = surplus(jobs_of(seen), wanted.keys()) | {build for build, each in wanted.items() if each.discard}
    jobs = {ref_of(each): label_of(each, names.LABEL_BUILD) for each in seen.of_kind("Job")}
    kept = {ref for ref, build in jobs.items() if build and build not in gone}
    builds = {*wanted, *(jobs[ref] for ref in kept)}
    parts = ((ref, child) for ref, child in seen.children.items() if ref.kind == "ConfigMap")
    return kept | {ref for ref, child in parts if _is_build_of(child, builds)}


def _is_build_of(child: Manifest, builds: set[str]) -> bool:
    is_build = label_of(child, config.LABEL_PART) == "build"
    return is_build and label_of(child, config.LABEL_DIGEST) in builds
