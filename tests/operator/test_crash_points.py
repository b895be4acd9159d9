"""The operator is killed before and after each of its writes: the next one always finishes what it left."""

import itertools
from collections.abc import Callable, Iterator

import pytest
from worlds import KEY, Stage, spec

from tailhold_api import names
from tailhold_operator.kinds import Manifest, Ref
from tailhold_operator.testing import Killed

OTHER_ENGINE = {"engine": {"blockSizeTokens": 64}}

Life = Callable[[Stage], Iterator[None]]


def create(stage: Stage) -> Iterator[None]:
    stage.put(spec())
    yield


def change_pods(stage: Stage) -> Iterator[None]:
    yield from create(stage)
    stage.put(spec(**OTHER_ENGINE))
    yield


def change_content(stage: Stage) -> Iterator[None]:
    yield from create(stage)
    stage.put(spec(retrieval={"topK": 9}))
    yield


def change_corpus(stage: Stage) -> Iterator[None]:
    yield from create(stage)
    stage.put(spec(corpus={"sources": [{"name": "more", "pvc": {"claimName": "more"}}]}))
    yield


def drain_first(stage: Stage) -> Iterator[None]:
    yield from create(stage)
    stage.put(spec(rollout={"strategy": "DrainFirst"}, **OTHER_ENGINE))
    yield


def there_and_back(stage: Stage) -> Iterator[None]:
    yield from change_pods(stage)
    stage.put(spec())
    yield


LIVES = [create, change_pods, change_content, change_corpus, drain_first, there_and_back]


def lived(life: Life, kill_at: int, moment: str) -> tuple[Stage, bool]:
    """A life in which the operator dies once, at its n-th write; the next operator goes on."""
    stage = Stage()
    died = False

    def interrupt(count: int, when: str) -> None:
        nonlocal died
        if not died and (count, when) == (kill_at, moment):
            died = True
            raise Killed

    stage.cluster.interrupt = interrupt
    for _ in life(stage):
        _settle(stage)
    return stage, died


def _settle(stage: Stage) -> None:
    while True:
        try:
            stage.settle()
        except Killed:
            continue
        return


def outcome(stage: Stage) -> dict[Ref, Manifest]:
    """What is left, without what tells when it happened."""
    left = stage.children()
    return {ref: each for ref, each in left.items() if not ref.name.endswith("-history")}


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_operator_leaves_nothing_undone_and_nothing_twice(life: Life, moment: str) -> None:
    """C16, P1 to P3."""
    reference, _ = lived(life, -1, moment)
    for kill_at in itertools.count():
        stage, died = lived(life, kill_at, moment)
        if not died:
            assert kill_at > 10
            return
        where = f"killed {moment} write {kill_at}: {reference.cluster.writes[kill_at]}"
        assert outcome(stage) == outcome(reference), where
        assert stage.condition("Ready") == ("True", "Reconciled"), where
        assert stage.status()["stable"] == reference.status()["stable"], where
        assert created_once(stage), where


def created_once(stage: Stage) -> bool:
    """No child was deleted and made again: nothing of it would be seen in the end state."""
    gone: set[str] = set()
    for write in stage.cluster.writes:
        verb, _, ref = write.partition(" ")
        if verb == "apply" and ref in gone and "Deployment" not in ref and "content" not in ref:
            return False
        gone |= {ref} if verb == "delete" else set()
    return True


def test_the_pipeline_itself_is_never_written_to_but_for_its_status() -> None:
    stage, _ = lived(there_and_back, -1, "before")
    touched = {write for write in stage.cluster.writes if f"{names.KIND} " in write}
    assert touched == {f"status {KEY}"}
