"""Keys, each once, edits first, none lost."""

import asyncio

import pytest

from tailhold_api import names
from tailhold_operator.kinds import Ref
from tailhold_operator.workqueue import WorkQueue


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def key(name: str) -> Ref:
    return Ref(names.KIND, "team", name)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock, spacing_seconds=1)


async def is_empty(queue: WorkQueue) -> bool:
    try:
        async with asyncio.timeout(0.02):
            await queue.get()
    except TimeoutError:
        return True
    return False


async def test_a_key_waits_once(queue: WorkQueue) -> None:
    for _ in range(3):
        queue.add(key("a"))
    assert await queue.get() == key("a")
    queue.done(key("a"))
    assert await is_empty(queue)


async def test_an_edit_overtakes_a_resync(queue: WorkQueue) -> None:
    for at in range(100):
        queue.add(key(f"{at}"))
    queue.add(key("edited"), urgent=True)
    assert await queue.get() == key("edited")


async def test_a_waiting_key_becomes_urgent(queue: WorkQueue) -> None:
    queue.add(key("a"))
    queue.add(key("b"))
    queue.add(key("b"), urgent=True)
    assert [await queue.get(), await queue.get()] == [key("b"), key("a")]


async def test_what_happens_during_a_pass_is_not_lost_and_not_at_once(queue: WorkQueue, clock: Clock) -> None:
    queue.add(key("a"))
    assert await queue.get() == key("a")
    queue.add(key("a"))
    assert await is_empty(queue)
    queue.done(key("a"))
    assert await is_empty(queue)
    clock.now += 1
    assert await queue.get() == key("a")


async def test_an_event_comes_before_a_later_return(queue: WorkQueue, clock: Clock) -> None:
    queue.add_after(key("a"), 60)
    assert await is_empty(queue)
    queue.add(key("a"))
    queue.add_after(key("a"), 60)
    assert await queue.get() == key("a")
    queue.done(key("a"))
    clock.now += 61
    assert await is_empty(queue)


async def test_failures_come_back_ever_later_until_one_pass_is_well(queue: WorkQueue) -> None:
    delays = []
    for _ in range(9):
        delays.append(queue.retry(key("a")))
        queue.forget(key("b"))
    assert delays[0] < 2 < delays[2] < delays[4]
    assert max(delays) <= 72
    queue.succeeded(key("a"))
    assert queue.retry(key("a")) < 2


async def test_a_sleeper_wakes_for_a_new_key(queue: WorkQueue) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add(key("a"))
    assert await asyncio.wait_for(waiting, 1) == key("a")


async def test_it_tells_how_long_it_stands_still(queue: WorkQueue, clock: Clock) -> None:
    """C12: liveness is progress."""
    assert queue.oldest_seconds() == 0
    queue.add(key("a"))
    clock.now += 50
    assert queue.oldest_seconds() == 50
    await queue.get()
    clock.now += 70
    assert queue.oldest_seconds() == 70
    queue.done(key("a"))
    assert queue.oldest_seconds() == 0
