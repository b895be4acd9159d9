"""One pass over one pipeline: read, decide, perform, say. All is read afresh, nothing is remembered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tailhold_api.conditions import ConditionType, Reason
from tailhold_api.status import Status
from tailhold_operator.announce import happenings, render_event
from tailhold_operator.cluster import Cluster
from tailhold_operator.conditions import stamp
from tailhold_operator.decide import SOON, Decision, Push, decide, refuse_content
from tailhold_operator.desire import Around
from tailhold_operator.errors import ConflictError, RefusedError
from tailhold_operator.findings import Finding, stuck, waiting
from tailhold_operator.history import History
from tailhold_operator.kinds import Ref, is_owned_by, owner_of, ref_of, uid_of
from tailhold_operator.observe import Seen
from tailhold_operator.parsing import read_status
from tailhold_operator.plan import Apply, Delete, plan
from tailhold_operator.pods import Declined, Pods
from tailhold_operator.reading import look
from tailhold_operator.render.config import render_history
from tailhold_operator.render.identity import identity_of
from tailhold_operator.render.setup import Setup
from tailhold_operator.sampling import Sampler
from tailhold_operator.summarise import status_body, summarise

Log = Callable[[str, Ref, str], None]
"""Takes what was done, to which object, and why."""
_LATER = timedelta(seconds=30)


@dataclass(frozen=True)
class World:
    """Everything outside that a pass touches."""

    cluster: Cluster
    pods: Pods
    setup: Setup
    public_key: Callable[[], str]
    now: Callable[[], datetime]
    sampler: Sampler
    log: Log


async def reconcile(world: World, key: Ref, *, sample: bool = False) -> timedelta | None:
    """Bring one pipeline a step on; says when to come back, or that only a change is worth it."""
    seen = await look(world.cluster, world.pods, key)
    if seen is None:
        world.sampler.forget(key)
        return None
    seen = await _sampled(world, key, seen, sample)
    around = Around(identity_of(seen.pipeline), world.setup, world.public_key())
    decision = decide(seen, around, world.now())
    blocked = await _blocked(world.cluster, seen, decision.writes)
    if blocked:
        return await _say(world, seen, _held(decision, blocked))
    refused = await _perform(world, decision.writes)
    if refused:
        return await _say(world, seen, _held(decision, refused))
    history = await _push(world, around, seen, decision)
    return await _say(world, seen, replace(decision, history=history))


async def _sampled(world: World, key: Ref, seen: Seen, sample: bool) -> Seen:
    """Latency is looked at seldom: a number that changes at each look would be written at each look."""
    before = read_status(seen.pipeline).p99_milliseconds
    p99 = await world.sampler.p99(key, seen, world.pods) if sample else before
    return replace(seen, p99_milliseconds=p99)


async def _blocked(cluster: Cluster, seen: Seen, writes: Sequence[Apply | Delete]) -> Finding | None:
    """Whether a name that is needed is taken. Looked at before the first write: nothing is half made."""
    for write in writes:
        if isinstance(write, Apply) and not write.uid:
            found = await _taken(cluster, seen, ref_of(write.manifest))
            if found:
                return found
    return None


async def _taken(cluster: Cluster, seen: Seen, ref: Ref) -> Finding | None:
    found = await cluster.named(ref)
    if found is None:
        return None
    uid, pipeline = uid_of(seen.pipeline), seen.pipeline["metadata"]
    owner = owner_of(found)
    namesake = owner.get("kind") == seen.pipeline["kind"] and owner.get("name") == pipeline["name"]
    if is_owned_by(found, uid) or namesake:
        return waiting(Reason.PENDING, f"{ref} of the same name is still being deleted")
    return stuck(Reason.NAME_CONFLICT, f"{ref} belongs to somebody else and is left alone")


async def _perform(world: World, writes: Sequence[Apply | Delete]) -> Finding | None:
    """All writes in order. What the API server will not have ends the pass and is said."""
    for write in writes:
        try:
            await perform(world.cluster, write)
        except RefusedError as error:
            return stuck(Reason.APPLY_REFUSED, str(error))
        except ConflictError as error:
            return waiting(Reason.PENDING, str(error))
        ref = write.ref if isinstance(write, Delete) else ref_of(write.manifest)
        world.log(type(write).__name__.lower(), ref, write.why)
    return None


async def perform(cluster: Cluster, write: Apply | Delete) -> None:
    """One write."""
    match write:
        case Apply(manifest, uid):
            await cluster.apply(manifest, uid)
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


async def _give_up(world: World, around: Around, seen: Seen, history: History, push: Push, answer: Declined) -> History:
    after = refuse_content(history, push, answer.words, stamp(world.now()))
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
