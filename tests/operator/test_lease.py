"""At most one writes, whatever the clocks say."""

import pytest
from worlds import pipeline, spec

from tailhold_operator.errors import NotLeaderError, UnavailableError
from tailhold_operator.kinds import Manifest, Ref
from tailhold_operator.lease import (
    LEASE_SECONDS,
    RENEW_DEADLINE_SECONDS,
    RETRY_SECONDS,
    GuardedCluster,
    Lease,
)
from tailhold_operator.testing import FakeClock, FakeCluster

REF = Ref("Lease", "home", "tailhold")


class Ticks:
    """A clock that nobody sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Flaky(FakeCluster):
    """An API server that may be out of reach."""

    down = False

    async def read(self, ref: Ref) -> Manifest | None:
        if self.down:
            raise UnavailableError("no answer")
        return await super().read(ref)


@pytest.fixture
def wall() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def cluster(wall: FakeClock) -> Flaky:
    return Flaky(wall)


@pytest.fixture
def first(cluster: Flaky, ticks: Ticks, wall: FakeClock) -> Lease:
    return Lease(cluster, REF, "first", ticks, wall)


@pytest.fixture
def second(cluster: Flaky, ticks: Ticks, wall: FakeClock) -> Lease:
    return Lease(cluster, REF, "second", ticks, wall)


async def test_the_first_to_ask_leads_and_the_second_waits(first: Lease, second: Lease) -> None:
    assert await first.attempt()
    assert not await second.attempt()
    assert (first.may_write, second.may_write) == (True, False)


async def test_a_dead_leader_is_followed_after_its_lease(first: Lease, second: Lease, ticks: Ticks) -> None:
    await first.attempt()
    await second.attempt()
    ticks.now += LEASE_SECONDS - 1
    assert not await second.attempt()
    ticks.now += 1
    assert await second.attempt()
    assert not first.may_write


async def test_a_leader_that_renews_is_never_followed(first: Lease, second: Lease, ticks: Ticks) -> None:
    await first.attempt()
    for _ in range(60):
        ticks.now += RETRY_SECONDS
        assert await first.attempt()
        assert not await second.attempt()


async def test_a_leader_that_slept_does_not_write(first: Lease, second: Lease, ticks: Ticks) -> None:
    """A zombie: paused past its lease, it wakes and must not finish what it began."""
    await first.attempt()
    await second.attempt()
    ticks.now += RENEW_DEADLINE_SECONDS
    assert not first.may_write
    ticks.now += LEASE_SECONDS
    await second.attempt()
    assert not await first.attempt()


async def test_writing_stops_before_another_may_start(
    first: Lease, second: Lease, ticks: Ticks, cluster: Flaky
) -> None:
    """C17: at no moment may both write, also when the API server is out of reach."""
    await first.attempt()
    await second.attempt()
    cluster.down = True
    for _ in range(40):
        ticks.now += 0.5
        await first.attempt()
        cluster.down = False
        await second.attempt()
        cluster.down = True
        assert not (first.may_write and second.may_write)
    assert second.may_write


async def test_the_wall_clock_decides_nothing(first: Lease, second: Lease, ticks: Ticks, wall: FakeClock) -> None:
    await first.attempt()
    await second.attempt()
    wall.pass_by(days=-400)
    ticks.now += 1
    assert await first.attempt()
    wall.pass_by(days=900)
    assert not await second.attempt()


async def test_what_is_given_up_is_free_at_once(first: Lease, second: Lease) -> None:
    await first.attempt()
    await first.release()
    assert not first.may_write
    assert await second.attempt()


async def test_of_two_that_ask_at_once_one_wins(first: Lease, second: Lease, cluster: Flaky, ticks: Ticks) -> None:
    await first.attempt()
    await first.release()
    stale = await cluster.read(REF)
    await second.attempt()
    assert stale is not None
    assert not await first.attempt()


async def test_only_the_leader_writes(first: Lease, cluster: Flaky, ticks: Ticks) -> None:
    guarded = GuardedCluster(cluster, first)
    with pytest.raises(NotLeaderError):
        await guarded.apply(pipeline(spec()), "")
    await first.attempt()
    await guarded.create(pipeline(spec()))
    ticks.now += RENEW_DEADLINE_SECONDS
    with pytest.raises(NotLeaderError):
        await guarded.delete(REF, "")
    with pytest.raises(NotLeaderError):
        await guarded.apply_status(pipeline(spec()), {})
    with pytest.raises(NotLeaderError):
        await guarded.replace(pipeline(spec()))
    assert await guarded.read(REF)
