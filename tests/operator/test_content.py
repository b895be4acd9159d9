"""How content spreads over pods that may refuse it, not answer, or come and go."""

from hypothesis import given
from hypothesis import strategies as st

from tailhold_operator.content import Spread, Taker, spread

OLD, NEW = "old", "new"


@st.composite
def pods(draw: st.DrawFn) -> list[Taker]:
    contents = draw(st.lists(st.sampled_from([OLD, NEW, "other", None]), max_size=4))
    return [Taker(f"pod-{at}", content) for at, content in enumerate(contents)]


def run(pods_: list[Taker], mounted: str | None, refuses: set[str]) -> tuple[list[Taker], str | None]:
    """Until nothing is handed out any more."""
    refused = False
    for _ in range(20):
        step = spread(NEW, mounted, OLD, pods_, refused=refused)
        mounted = step.mount
        if not step.push:
            return pods_, mounted
        refused = refused or (step.give == NEW and bool(set(step.push) & refuses))
        taken = {name for name in step.push if step.give == OLD or name not in refuses}
        pods_ = [Taker(each.name, step.give) if each.name in taken else each for each in pods_]
    raise AssertionError("it never ends")


@given(pods(), st.sampled_from([OLD, NEW, None]))
def test_all_pods_that_answer_end_with_the_new_content(pods_: list[Taker], mounted: str | None) -> None:
    after, mount = run(pods_, mounted, set())
    silent = [each for each in after if each.content is None]
    if len(silent) < len(after) or not after:
        assert {each.content for each in after if each.content} <= {NEW}
        assert mount == NEW


@given(pods(), st.sets(st.sampled_from([f"pod-{at}" for at in range(4)]), min_size=1))
def test_if_one_refuses_all_end_with_the_old_content(pods_: list[Taker], refuses: set[str]) -> None:
    told = [Taker(each.name, OLD) for each in pods_ if each.content]
    after, mount = run(told, OLD, refuses)
    if refuses & {each.name for each in told}:
        assert {each.content for each in after} == {OLD}
        assert mount == OLD


@given(pods())
def test_one_pod_goes_first(pods_: list[Taker]) -> None:
    fresh = [each for each in pods_ if each.content != NEW]
    step = spread(NEW, OLD, OLD, fresh, refused=False)
    assert len(step.push) <= 1
    assert step.mount == OLD or not fresh


def test_with_no_pod_at_all_the_new_content_is_what_they_start_with() -> None:
    """C31: what cannot start on the old content gets the new one."""
    assert spread(NEW, OLD, OLD, [], refused=False) == Spread(NEW, (), NEW)


def test_what_was_refused_and_has_nothing_before_it_stays() -> None:
    assert spread(NEW, NEW, None, [Taker("a", NEW)], refused=True).mount == NEW
