"""The loops around the passes: who is woken, what is counted as standing still."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from worlds import KEY, Stage, spec

from tailhold_api import names
from tailhold_operator.controller import Controller
from tailhold_operator.errors import UnavailableError
from tailhold_operator.handlers import build_registry, build_settings
from tailhold_operator.kinds import CHILD_KINDS, Manifest, Ref
from tailhold_operator.lease import Lease


class Ticks:
    """A clock that moves when it is told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    stage.put(spec())
    return stage


@pytest.fixture
async def controller(stage: Stage, ticks: Ticks) -> AsyncIterator[Controller]:
    async def prepare() -> None:
        return None

    lease = Lease(stage.cluster, Ref("Lease", "home", "tailhold"), "me", ticks, stage.clock)
    controller = Controller(stage.world, stage.cluster, lease, (), 300, 2, prepare, ticks)
    yield controller
    await controller.stop()


async def until_written(stage: Stage, what: str) -> None:
    for _ in range(200):
        if any(what in write for write in stage.cluster.writes):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(stage.cluster.writes)


async def test_a_new_leader_looks_at_everything(controller: Controller, stage: Stage) -> None:
    controller.start()
    await until_written(stage, "apply Job")
    assert controller.standstill() is None


async def test_who_does_not_lead_writes_nothing(controller: Controller, stage: Stage, ticks: Ticks) -> None:
    other = Lease(stage.cluster, Ref("Lease", "home", "tailhold"), "other", ticks, stage.clock)
    await other.attempt()
    before = len(stage.cluster.writes)
    controller.start()
    controller.heard(stage.cluster.objects[KEY], gone=False)
    await asyncio.sleep(0.1)
    assert len(stage.cluster.writes) == before
    assert controller.standstill() is None


async def test_an_event_of_a_child_wakes_its_pipeline_alone(controller: Controller, stage: Stage) -> None:
    controller.heard(stage.cluster.objects[KEY], gone=False)
    assert await controller.queue.get() == KEY
    controller.queue.done(KEY)
    controller.heard_of_child("of somebody who is dead")
    assert len(controller.queue) == 0
    controller.heard_of_child(stage.cluster.objects[KEY]["metadata"]["uid"])
    assert len(controller.queue) == 1


async def test_a_failing_pass_stops_nobody_and_is_tried_again(controller: Controller, stage: Stage) -> None:
    """P7."""
    stage.put(spec(), name="other")
    read = stage.cluster.read

    async def fails(ref: Ref) -> Manifest | None:
        if ref == KEY:
            raise UnavailableError("no answer")
        if ref.name == "other" and ref.kind == names.KIND and not seen:
            seen.append(ref)
            raise KeyError("a fault of ours")
        return await read(ref)

    seen: list[Ref] = []
    stage.cluster.read = fails  # type: ignore[method-assign]
    controller.start()
    for _ in range(100):
        if len(controller.queue) == 2:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("both have to wait for another pass")


class TestStandstill:
    """C12."""

    async def test_a_resync_that_does_not_come(self, controller: Controller, stage: Stage, ticks: Ticks) -> None:
        controller.start()
        await until_written(stage, "apply Job")
        controller.pulse.resynced = ticks.now - 1000
        assert controller.standstill() == "no resync"

    async def test_a_pass_that_does_not_end(self, controller: Controller, ticks: Ticks, stage: Stage) -> None:
        controller.start()
        await until_written(stage, "apply Job")
        controller.queue.add(Ref(names.KIND, "team", "slow"))
        controller.queue._running[Ref(names.KIND, "team", "slow")] = ticks.now - 1000
        assert controller.standstill() == "the queue stands still"

    async def test_an_election_that_does_not_go_on(self, controller: Controller, ticks: Ticks) -> None:
        ticks.now += 1000
        assert controller.standstill() == "the election stands still"

    async def test_a_watch_that_tells_of_no_edits(self, controller: Controller, stage: Stage) -> None:
        """An edit that two looks at everything found, and no event ever told of."""
        controller.start()
        await until_written(stage, "apply Job")
        await controller._look_at_all(sample=True)
        assert controller.standstill() == "the watch tells of no edits"
        controller.heard(stage.cluster.objects[KEY], gone=False)
        await controller._look_at_all(sample=True)
        assert controller.standstill() is None


def test_kopf_leaves_no_trace_and_is_bounded_in_time() -> None:
    settings = build_settings()
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.networking.request_timeout == 30
    assert (settings.watching.server_timeout, settings.watching.client_timeout) == (300, 330)
    assert 100 <= sum(settings.networking.error_backoffs) <= 150  # type: ignore[arg-type]


def test_events_are_all_that_kopf_carries() -> None:
    """No handler that would keep its progress in annotations, and none that would need a finalizer."""
    registry = build_registry()
    assert len(registry._watching.get_all_handlers()) == len(CHILD_KINDS) + 1
    assert not list(registry._changing.get_all_handlers())
    assert not list(registry._spawning.get_all_handlers())
