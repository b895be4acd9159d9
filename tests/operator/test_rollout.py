"""Laws of a rollout, for any state that it may be found in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.conditions import Reason
from tailhold_api.rollout import Rollout, RolloutStrategy
from tailhold_api.status import RevisionStatus
from tailhold_operator.conditions import stamp
from tailhold_operator.findings import stuck, waiting
from tailhold_operator.history import History
from tailhold_operator.rollout.advance import advance
from tailhold_operator.rollout.view import DRAIN_STEP, PATIENCE, SETTLE, Side, Step, View

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = "a" * 64, "b" * 64


def revision(pod: str, content: str = "c" * 64) -> RevisionStatus:
    return RevisionStatus(name=f"{pod[:10]}-{content[:10]}", pod_digest=pod, content_digest=content)


def part(pod: str) -> str:
    return pod[:10]


COUNTS = st.integers(0, 3)
TROUBLES = st.sampled_from(
    [
        waiting(Reason.LOADING_MODEL),
        waiting(Reason.UNSCHEDULABLE, "0/1 nodes"),
        stuck(Reason.MODEL_NOT_FOUND),
        stuck(Reason.CRASH_LOOP),
    ]
)
MOMENTS = st.integers(0, 8000).map(lambda seconds: NOW - timedelta(seconds=seconds))


@st.composite
def sides(draw: st.DrawFn) -> Side:
    ready = draw(COUNTS)
    return Side(
        wanted=draw(COUNTS),
        pods=ready + draw(COUNTS),
        ready=ready,
        confirmed=draw(st.integers(0, ready)),
        homeless=draw(COUNTS),
        created=draw(MOMENTS),
        trouble=draw(TROUBLES),
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    drained = draw(st.one_of(st.just(""), MOMENTS.map(stamp)))
    served = draw(st.sampled_from([(revision(OLD),), (revision(OLD), revision(NEW)), ()]))
    return History(revisions=served, drained_at=drained, switched_at=draw(st.one_of(st.just(""), MOMENTS.map(stamp))))


@st.composite
def views(draw: st.DrawFn, strategies: tuple[RolloutStrategy, ...] = tuple(RolloutStrategy)) -> View:
    found = draw(st.dictionaries(st.sampled_from([part(OLD), part(NEW)]), sides(), max_size=2))
    return View(
        target=revision(NEW),
        serving=draw(st.sampled_from([None, part(OLD), part(NEW)])),
        sides=found,
        history=draw(histories()),
        replicas=draw(COUNTS),
        rules=Rollout(strategy=draw(st.sampled_from(strategies)), deadline_seconds=3600),
        leaving=draw(COUNTS),
    )


@given(views())
def test_every_state_has_a_next_step_that_says_why(view: View) -> None:
    step = advance(view, NOW)
    assert step.serving in (part(OLD), part(NEW))
    assert step.outcome.holds or step.outcome.reason is not Reason.RECONCILED


@given(views())
def test_an_end_is_an_end(view: View) -> None:
    """Nothing is waited for exactly when it is rolled out or only the user can go on."""
    step = advance(view, NOW)
    if step.wait is None:
        assert step.outcome.holds or step.outcome.stalled or step.history.failure


@given(views())
def test_the_service_turns_to_nothing_that_did_not_confirm_while_something_serves(view: View) -> None:
    """I2, I6."""
    step = advance(view, NOW)
    served = view.history.served(view.serving or "") is not None
    if view.serving == part(OLD) and served and step.serving == part(NEW):
        fresh = view.fresh
        assert fresh is not None
        assert fresh.confirmed >= view.replicas


@given(views((RolloutStrategy.SURGE,)))
def test_surge_never_takes_a_pod_from_what_serves(view: View) -> None:
    """I4."""
    step = advance(view, NOW)
    stable = view.stable
    if (
        view.serving == part(OLD)
        and view.history.served(part(OLD))
        and step.serving == part(OLD)
        and stable
        and stable.ready
    ):
        assert step.replicas[part(OLD)] >= min(view.replicas, stable.wanted)


@given(views())
def test_what_serves_is_never_deleted_before_it_is_replaced(view: View) -> None:
    step = advance(view, NOW)
    if view.history.served(view.serving or "") and step.serving == view.serving:
        assert step.serving in step.replicas


@given(views())
def test_what_was_given_up_stays_given_up(view: View) -> None:
    step = advance(view, NOW)
    if step.history.failure:
        again = advance(replace(view, history=step.history), NOW + timedelta(hours=1))
        assert again.history.failure == step.history.failure
        assert again.serving == step.serving


@given(views())
def test_the_same_look_decides_the_same(view: View) -> None:
    assert advance(view, NOW) == advance(view, NOW)


@given(views())
def test_deciding_again_from_what_was_remembered_changes_nothing_more(view: View) -> None:
    """C15: a step taken twice is taken once; a switch is timed at each look until the Service has turned."""
    first = advance(view, NOW)
    if first.serving == view.serving:
        second = advance(replace(view, history=first.history), NOW)
        assert second.history == first.history


def side(**changes: object) -> Side:
    plain = Side(1, 1, 1, 0, 0, NOW - timedelta(seconds=60), waiting(Reason.LOADING_MODEL))
    return replace(plain, **changes)  # type: ignore[arg-type]


def view(stable: Side | None, fresh: Side | None, strategy: str = "Auto", **changes: object) -> View:
    found = {part(OLD): stable, part(NEW): fresh}
    plain = View(
        target=revision(NEW),
        serving=part(OLD),
        sides={name: each for name, each in found.items() if each},
        history=History(revisions=(revision(OLD),)),
        replicas=1,
        rules=Rollout(strategy=RolloutStrategy(strategy)),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def drained(ago: timedelta = timedelta(seconds=60)) -> History:
    return History(revisions=(revision(OLD),), drained_at=stamp(NOW - ago))


def freed(ago: timedelta) -> History:
    return History(revisions=(revision(OLD),), freed_at=stamp(NOW - ago))


GONE = side(wanted=0, pods=0, ready=0)
HOMELESS = side(ready=0, homeless=1, trouble=waiting(Reason.INSUFFICIENT_GPU, "Insufficient nvidia.com/gpu"))
HOPELESS = side(ready=0, trouble=stuck(Reason.MODEL_NOT_FOUND, "no such folder"))


LATE = NOW - timedelta(hours=2)
STEPS = {
    "beside": (view(side(), None), {OLD: 1, NEW: 1}, "RollingOut"),
    "drain first": (view(side(), None, "DrainFirst"), {OLD: 0}, "Draining"),
    "still leaving": (view(side(wanted=0), None, "DrainFirst", history=drained()), {OLD: 0}, "Draining"),
    "all are gone": (view(GONE, None, "DrainFirst", history=drained()), {OLD: 0, NEW: 1}, "Draining"),
    "C24 no room, so room is made": (view(side(), HOMELESS), {OLD: 0, NEW: 1}, "Draining"),
    "room is coming": (view(side(), HOMELESS, leaving=1), {OLD: 1, NEW: 1}, "RollingOut"),
    "room has just come": (view(side(), HOMELESS, history=freed(DRAIN_STEP / 2)), {OLD: 1, NEW: 1}, "RollingOut"),
    "room went to another": (view(side(), HOMELESS, history=freed(DRAIN_STEP)), {OLD: 0, NEW: 1}, "Draining"),
    "surge waits": (view(side(), HOMELESS, "Surge"), {OLD: 1, NEW: 1}, "RollingOut"),
    "C31 surge with nothing to lose": (view(side(ready=0), HOMELESS, "Surge"), {OLD: 0, NEW: 1}, "Draining"),
    "room is kept": (view(GONE, side(ready=0), history=drained()), {OLD: 0, NEW: 1}, "Draining"),
    "beside, it may yet be mended": (view(side(), HOPELESS), {OLD: 1, NEW: 1}, "ModelNotFound"),
    "in its place, it may not": (view(GONE, HOPELESS, history=drained()), {OLD: 1}, "ModelNotFound"),
    "room never came": (view(GONE, HOMELESS, history=drained(PATIENCE)), {OLD: 1}, "InsufficientGPU"),
    "switch": (view(side(), side(confirmed=1)), {OLD: 1, NEW: 1}, "RollingOut"),
    "too late": (view(side(), side(created=LATE)), {OLD: 1}, "DeadlineExceeded"),
    "just in time": (view(side(), side(created=LATE, confirmed=1)), {OLD: 1, NEW: 1}, "RollingOut"),
}


@pytest.mark.parametrize(("seen", "replicas", "reason"), STEPS.values(), ids=STEPS)
def test_a_step(seen: View, replicas: dict[str, int], reason: str) -> None:
    step = advance(seen, NOW)
    assert dict(step.replicas) == {part(pod): count for pod, count in replicas.items()}
    assert step.outcome.reason == reason


def test_the_old_pods_stay_until_every_node_knows() -> None:
    switched = advance(view(side(), side(confirmed=1)), NOW)
    turned = view(side(), side(confirmed=1), serving=part(NEW), history=switched.history)
    assert part(OLD) in advance(turned, NOW + SETTLE / 2).replicas
    assert part(OLD) not in advance(turned, NOW + SETTLE).replicas


def test_of_several_pods_only_as_many_go_as_lack_room() -> None:
    seen = view(side(wanted=3, pods=3, ready=3), side(wanted=3, pods=3, ready=1, homeless=2), replicas=3)
    step = advance(seen, NOW)
    assert step.replicas == {part(OLD): 1, part(NEW): 3}
    shrunk = replace(seen, sides={**seen.sides, part(OLD): side(wanted=1, pods=1, ready=1)}, history=step.history)
    assert advance(shrunk, NOW + timedelta(seconds=1)).replicas[part(OLD)] == 1


def test_a_step_is_a_value() -> None:
    assert isinstance(advance(view(side(), None), NOW), Step)
