"""One pass over one pipeline: read, decide, perform, say. All is read afresh, nothing is remembered."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from tailhold_api import names
from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.slo import Slo
from tailhold_api.status import Status
from tailhold_operator.announce import happenings, render_event
from tailhold_operator.carrying import carried
from tailhold_operator.cluster import Cluster
from tailhold_operator.conditions import stamp
from tailhold_operator.decide import SOON, Decision, Probing, Push, decide, refuse_content
from tailhold_operator.desire import Around
from tailhold_operator.errors import ConflictError, RefusedError
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.history import Failure, History
from tailhold_operator.judge.watched import Watched
from tailhold_operator.kinds import Manifest, Ref, is_owned_by, is_terminating, owner_of, ref_of, uid_of
from tailhold_operator.observe import Seen
from tailhold_operator.parsing import read_status
from tailhold_operator.plan import Apply, Delete, Merge, plan
from tailhold_operator.pods import Declined, Pods
from tailhold_operator.reading import look
from tailhold_operator.render.config import render_history
from tailhold_operator.render.identity import identity_of
from tailhold_operator.render.setup import Setup
from tailhold_operator.sampling import Sampler
from tailhold_operator.summarise import status_body, summarise
from tailhold_operator.watch.target import Target, target_of

Log = Callable[[str, Ref, str], None]
"""Takes what was done, to which object, and why."""
Write = Apply | Merge | Delete
_LATER = timedelta(seconds=30)


class Watch(Protocol):
    """What knows how the revisions do."""

    wake: Callable[[Ref], None]
    """Called where the promises fare otherwise than the last pass said."""

    async def run(self, may_look: Callable[[], bool]) -> None:
        """Look again and again."""

    def saw(self, key: Ref, target: Target) -> None:
        """What a pass found."""

    def watched(self, key: Ref) -> Watched:
        """What is known of a pipeline now."""

    def forget(self, key: Ref) -> None:
        """A pipeline that is gone."""


@dataclass(frozen=True)
class World:
    """Everything outside that a pass touches."""

    cluster: Cluster
    pods: Pods
    setup: Setup
    public_key: Callable[[], str]
    now: Callable[[], datetime]
    sampler: Sampler
    watch: Watch
    log: Log


async def reconcile(world: World, key: Ref, *, sample: bool = False) -> timedelta | None:
    """Bring one pipeline a step on; says when to come back, or that only a change is worth it."""
    seen = await look(world.cluster, world.pods, key)
    if seen is None:
        world.sampler.forget(key)
        world.watch.forget(key)
        return None
    seen = await _sampled(world, key, seen, sample)
    around = Around(identity_of(seen.pipeline), world.setup, world.public_key())
    decision = decide(seen, around, world.now())
    # First of all: what pods hand over must not wait for the API server, least of all that it is nothing any more.
    await _hand_over(world, around, decision)
    slo = decision.asked.spec.slo if decision.asked else Slo()
    world.watch.saw(key, target_of(seen, slo, decision.promises))
    blocked = await _blocked(world, seen, decision.writes)
    if blocked:
        return await _say(world, seen, _held(decision, blocked))
    refused = await _perform(world, decision.writes)
    if refused:
        history = await _without_room(world, around, seen, decision, refused)
        return await _say(world, seen, _held(replace(decision, history=history), refused))
    await _teach(world, around, decision)
    history = await _push(world, around, seen, decision)
    history = await _probe(world, around, seen, decision.probing, history)
    return await _say(world, seen, replace(decision, history=history))


async def _sampled(world: World, key: Ref, seen: Seen, sample: bool) -> Seen:
    """Latency is looked at seldom: a number that changes at each look would be written at each look."""
    before = read_status(seen.pipeline)
    p99 = await world.sampler.p99(key, seen, world.pods) if sample else before.p99_milliseconds
    capacity = carried(seen, before.capacity, sample=sample)
    return replace(seen, p99_milliseconds=p99, capacity=capacity, sampled=sample, watched=world.watch.watched(key))


async def _blocked(world: World, seen: Seen, writes: Sequence[Write]) -> Finding | None:
    """Whether a name that is needed is taken. Looked at before the first write: nothing is half made."""
    lost: list[Merge] = []
    made = {ref_of(each.manifest): each.manifest for each in writes if isinstance(each, Apply) and not each.uid}
    for ref in dict.fromkeys((*made, *_front_door(seen))) if writes else ():
        found = await world.cluster.named(ref)
        if found and _is_lost(found, seen):
            labels = (
                made[ref]["metadata"]["labels"]
                if ref in made
                else identity_of(seen.pipeline).labels(names.COMPONENT_SERVER)
            )
            lost.append(Merge(ref, uid_of(found), {"metadata": {"labels": labels}}, "lost its labels"))
        elif found:
            return _taken(found, seen)
    if lost:  # What was decided without them is not acted on.
        refused = await _perform(world, lost)
        return refused or waiting(Reason.PENDING, f"{lost[0].ref} had lost its labels and is found again")
    return None


def _front_door(seen: Seen) -> tuple[Ref, ...]:
    """What is made last: that its name is taken is said before hours went into an index."""
    identity = identity_of(seen.pipeline)
    doors = (Ref(kind, identity.namespace, identity.child()) for kind in ("Service", "PodDisruptionBudget"))
    return tuple(ref for ref in doors if ref not in seen.children)


def _is_lost(found: Manifest, seen: Seen) -> bool:
    """Whether it is our own and was not found by its labels."""
    return is_owned_by(found, uid_of(seen.pipeline)) and not is_terminating(found)


def _taken(found: Manifest, seen: Seen) -> Finding:
    owner, pipeline = owner_of(found), seen.pipeline
    namesake = (owner.get("kind"), owner.get("name")) == (pipeline["kind"], pipeline["metadata"]["name"])
    if namesake:
        return waiting(Reason.PENDING, f"{ref_of(found)} of the same name is still being deleted")
    told = (
        f"{ref_of(found)} belongs to somebody else and is left alone: rename the pipeline, or remove the object; if it"
        " was the pipeline's own, put its ownerReferences back"
    )
    return stuck(Reason.NAME_CONFLICT, told)


async def _perform(world: World, writes: Sequence[Write]) -> Finding | None:
    """All writes in order. What the API server will not have ends the pass and is said."""
    for write in writes:
        try:
            await perform(world.cluster, write)
        except RefusedError as error:
            return stuck(Reason.APPLY_REFUSED, str(error))
        except ConflictError as error:
            return waiting(Reason.PENDING, str(error))
        ref = ref_of(write.manifest) if isinstance(write, Apply) else write.ref
        world.log(type(write).__name__.lower(), ref, write.why)
    return None


async def perform(cluster: Cluster, write: Write) -> None:
    """One write."""
    match write:
        case Apply(manifest, uid):
            await cluster.apply(manifest, uid)
        case Merge(ref, uid, change):
            await cluster.merge(ref, uid, change)
        case Delete(ref, uid):
            await cluster.delete(ref, uid)


async def _push(world: World, around: Around, seen: Seen, decision: Decision) -> History:
    """Hand out content until a pod refuses; what is remembered then."""
    for push in decision.pushes:
        answer = await world.pods.push(push.pod, push.content, around.identity.audience)
        ref = Ref("Pod", around.identity.namespace, push.pod.name)
        world.log(type(answer).__name__.lower(), ref, push.revision)
        if isinstance(answer, Declined) and push.revision:
            return await _give_up(world, around, seen, decision.history, push, answer)
    return decision.history


async def _teach(world: World, around: Around, decision: Decision) -> None:
    """Have pods count what is promised. One that does not take it is told again with the next pass."""
    for each in decision.tellings:
        answer = await world.pods.tell(each.pod, each.objectives, around.identity.audience)
        told = ", ".join(objective.name for objective in each.objectives.objectives) or "no objective"
        world.log(type(answer).__name__.lower(), Ref("Pod", around.identity.namespace, each.pod.name), told)


async def _hand_over(world: World, around: Around, decision: Decision) -> None:
    """Tell all pods at once. One that does not hear it forgets what it was told before by itself."""
    audience, asked = around.identity.audience, decision.handings
    answers = await asyncio.gather(*(world.pods.hand_over(each.pod, each.handover, audience) for each in asked))
    for each, answer in zip(asked, answers, strict=True):
        told = "nothing" if each.handover.is_over else f"{each.handover.weight_percent:g} % to {each.handover.revision}"
        world.log(type(answer).__name__.lower(), Ref("Pod", around.identity.namespace, each.pod.name), told)


async def _probe(world: World, around: Around, seen: Seen, probing: Probing | None, history: History) -> History:
    """Ask a candidate pod questions of ours, and remember what came of it."""
    if probing is None or history.trial is None:
        return history
    found = await world.pods.probe(probing.pod, probing.probe, around.identity.audience)
    words = f"{found.failed} of {found.requests} failed" if found else "no answer"
    world.log("probe", Ref("Pod", around.identity.namespace, probing.pod.name), words)
    if found is None:
        return history
    return await _remember(world, around, seen, history.on_trial(history.trial.model_copy(update={"probe": found})))


async def _without_room(world: World, around: Around, seen: Seen, decision: Decision, refused: Finding) -> History:
    """A candidate that the API server will not have is given up where serving pods had made room for it."""
    if not (refused.stalled and decision.target and decision.history.drained_at):
        return decision.history
    name, at = decision.target.status.name, stamp(world.now())
    failure = Failure(name=name, reason=refused.reason.value, message=refused.message, at=at)
    return await _remember(world, around, seen, decision.history.with_failure(failure))


async def _give_up(world: World, around: Around, seen: Seen, history: History, push: Push, answer: Declined) -> History:
    after = refuse_content(history, push, answer.words, stamp(world.now()))
    return await _remember(world, around, seen, after)


async def _remember(world: World, around: Around, seen: Seen, after: History) -> History:
    manifest = render_history(after, around.identity)
    found = seen.children.get(ref_of(manifest))
    owned = {ref_of(manifest): found} if found else {}
    await _perform(world, plan([manifest], owned))
    return after


def _held(decision: Decision, finding: Finding) -> Decision:
    """Nothing more can be done for now, and why."""
    findings = dict(decision.findings)
    kind = ConditionType.ACCEPTED if finding.reason is Reason.NAME_CONFLICT else ConditionType.ROLLED_OUT
    findings[kind] = finding
    return replace(decision, findings=findings, wait=_LATER if finding.stalled else SOON)


async def _say(world: World, seen: Seen, decision: Decision) -> timedelta | None:
    """Write the status where it differs, and tell what happened."""
    now = world.now()
    before, after = read_status(seen.pipeline), summarise(seen, decision, now)
    if before != after:
        await world.cluster.apply_status(seen.pipeline, status_body(after))
        await _tell(world, seen, before, after, now)
    return decision.wait


async def _tell(world: World, seen: Seen, before: Status, after: Status, now: datetime) -> None:
    for happening in happenings(before, after):
        event = render_event(seen.pipeline, happening, stamp(now))
        try:
            await world.cluster.create(event)
        except RefusedError as error:  # The status tells it all; an Event is a courtesy.
            world.log("not told", ref_of(event), str(error))
