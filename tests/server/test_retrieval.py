"""What a search found, and the thread that searches."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.serving import Batching
from tailhold_api.sources import Metric
from tailhold_server.batcher import Batcher, wait_seconds
from tailhold_server.prompt import Passage
from tailhold_server.retrieval import choose


def test_places_that_nothing_fills_are_no_passages() -> None:
    """C73: -1 would be the last chunk of a list."""
    found = choose([0.9, 0.5, -3.4e38], [1, 0, -1], count=2, min_score=-1.0, metric=Metric.COSINE)
    assert found == (Passage(1, 0.9), Passage(0, 0.5))


def test_a_chunk_found_twice_is_one_passage() -> None:
    """C73: each once."""
    assert len(choose([0.9, 0.9], [1, 1], count=2, min_score=-1.0, metric=Metric.COSINE)) == 1


@given(st.lists(st.floats(-2, 2), max_size=10), st.floats(-1, 1))
def test_cosine_scores_stay_within_one_and_above_the_least(scores: list[float], least: float) -> None:
    """C78."""
    ids = list(range(len(scores)))
    found = choose(scores, ids, count=len(ids), min_score=least, metric=Metric.COSINE)
    assert all(-1.0 <= each.score <= 1.0 and each.score >= least for each in found)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_an_unfit_score_is_left_out() -> None:
    assert choose([float("nan")], [0], count=1, min_score=-1.0, metric=Metric.INNER_PRODUCT) == ()


@given(st.booleans(), st.integers(1, 100), st.floats(0, 1))
def test_an_idle_server_never_waits_and_nobody_waits_too_long(idle: bool, queued: int, waited: float) -> None:
    batching = Batching(max_wait_milliseconds=5, max_batch=32)
    wait = wait_seconds(batching, was_idle=idle, queued=queued, waited_seconds=waited)
    assert 0.0 <= wait <= max(0.0, 0.005 - waited)
    assert wait == 0.0 or not (idle or queued >= 32)


async def test_questions_that_arrive_while_a_batch_runs_are_the_next_batch() -> None:
    batches: list[list[int]] = []
    first_runs, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        if len(batches) == 1:
            first_runs.set()
            go_on.wait(10)
        return [item * 2 for item in items]

    batcher = Batcher(work, lambda: Batching(max_batch=3, max_wait_milliseconds=0))
    batcher.start()
    one = asyncio.ensure_future(batcher.submit(1))
    await asyncio.to_thread(first_runs.wait, 10)
    more = [asyncio.ensure_future(batcher.submit(item)) for item in range(2, 7)]
    await asyncio.sleep(0)
    more[0].cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert [await one, *(await asyncio.gather(*more[1:]))] == [2, 6, 8, 10, 12]
    assert batches[0] == [1]
    assert [len(batch) <= 3 for batch in batches] == [True] * len(batches)
    assert 2 not in [item for batch in batches for item in batch]
    await batcher.close()


async def test_a_failed_batch_fails_its_questions_and_no_others() -> None:
    def work(items: Sequence[int]) -> list[int]:
        if 0 in items:
            raise ZeroDivisionError
        return list(items)

    batcher = Batcher(work, Batching)
    batcher.start()
    with pytest.raises(ZeroDivisionError):
        await batcher.submit(0)
    assert await batcher.submit(1) == 1
    await batcher.close()
