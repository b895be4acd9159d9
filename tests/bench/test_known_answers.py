"""The generator's own bookkeeping against what is known, in virtual time: no machine's noise is in it."""

import asyncio

import numpy as np
import pytest
from virtual_time import in_virtual_time

from tailhold_bench.load.arrivals import Spacing, arrivals, steady
from tailhold_bench.load.generator import Generator, Limits
from tailhold_bench.load.percentiles import Latency, interval, latencies, mean_in_flight, percentile, time_in_system
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.queueing import mean_wait, time_in_system_percentile, times_in_system
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Due
from tailhold_bench.load.target import Clock

SERVICE = 0.0184


class Queue:
    """One server, one after the other; it may stand still once."""

    def __init__(self, service: float = SERVICE, *, stall_at: float = -1.0, stall: float = 1.0) -> None:
        self._service = service
        self._free_at = 0.0
        self._stall_at = stall_at
        self._stall = stall

    async def ask(self, asked: Asked, sample: Sample, clock: Clock) -> None:
        sample.begun = clock()
        begins = max(sample.begun, self._free_at)
        if self._stall_at <= begins < self._stall_at + self._stall:
            begins = self._stall_at + self._stall
        self._free_at = begins + self._service
        await asyncio.sleep(self._free_at - sample.begun)
        sample.token(clock())
        sample.ended = clock()
        sample.outcome = Outcome.OK

    async def close(self) -> None:
        pass


def measured(target: Queue, times: list[float], limits: Limits | None = None) -> list[Sample]:
    async def run() -> list[Sample]:
        samples: list[Sample] = []
        generator = Generator(target, limits or Limits(), 0.0, samples.append)
        await generator.send([Due(number, at, Asked("Why?", 1)) for number, at in enumerate(times)])
        await generator.drain()
        return sorted(samples, key=lambda sample: sample.number)

    return in_virtual_time(run())


def test_the_theory_is_the_one_that_was_written_down() -> None:
    """The table of floors for a service of 18.4 ms, in milliseconds."""
    table = {0.3: (18, 38, 53), 0.5: (18, 56, 80), 0.7: (32, 93, 136), 0.8: (42, 139, 210)}
    for load, row in table.items():
        found = [1000 * time_in_system_percentile(percent, SERVICE, load) for percent in (50, 95, 99)]
        assert found == pytest.approx(row, rel=0.02, abs=0.5)


@pytest.mark.parametrize("load", [0.5, 0.7, 0.8])
def test_a_queue_takes_as_long_as_theory_says(load: float) -> None:
    rate = load / SERVICE
    samples = measured(Queue(), list(arrivals(steady(rate, 20_000 / rate), Spacing.POISSON, 11)))
    found = latencies(samples, Latency.E2E)
    assert float(found.mean()) - SERVICE == pytest.approx(mean_wait(SERVICE, load), rel=0.07)
    for percent in (50, 90, 95, 99):
        around = interval(found, percent)
        theory = time_in_system_percentile(percent, SERVICE, load)
        assert around.low - 1e-6 <= theory <= around.high + 1e-6, f"p{percent}"
        assert percentile(found, percent) == pytest.approx(theory, rel=0.07)


def test_each_request_takes_as_long_as_the_queue_before_it_says() -> None:
    times = list(arrivals(steady(48, 30), Spacing.POISSON, 4))
    exact = list(times_in_system(times, SERVICE))
    assert latencies(measured(Queue(), times), Latency.E2E) == pytest.approx(exact, abs=1e-9)


def test_little_s_law_holds_for_what_was_counted() -> None:
    """In flight is counted from other fields than latency; the two must meet."""
    samples = measured(Queue(), list(arrivals(steady(40, 100), Spacing.POISSON, 3)))
    last = max(sample.ended or 0 for sample in samples)
    mean = float(np.mean(latencies(samples, Latency.E2E)))
    first = samples[0].due
    assert time_in_system(mean_in_flight(samples), len(samples) / (last - first)) == pytest.approx(mean, rel=1e-6)


def test_a_stall_of_a_second_shows_in_the_percentiles() -> None:
    """Coordinated omission: who waits for an answer before asking again sees one slow request in 2,000."""
    times = list(arrivals(steady(100, 20), Spacing.CONSTANT, 0))
    samples = measured(Queue(0.001, stall_at=5.0), times)
    found = latencies(samples, Latency.E2E)
    assert percentile(found, 99) > 0.75
    assert percentile(found, 50) == pytest.approx(0.001, abs=1e-6)
    slow = sum(value > 0.01 for value in found)
    assert slow == pytest.approx(100, abs=12), "all that were due in that second, and those that queued behind them"


def test_requests_leave_on_time_however_slow_the_answers_are() -> None:
    samples = measured(Queue(5.0), [0.0, 0.1, 0.2, 0.3], Limits(timeout_seconds=60))
    assert [sample.begun for sample in samples] == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert latencies(samples, Latency.E2E) == pytest.approx([5.0, 9.9, 14.8, 19.7])


def test_a_request_is_given_up_when_its_time_is_over_counted_from_when_it_was_due() -> None:
    samples = measured(Queue(1.0), [0.0, 0.1, 0.2], Limits(timeout_seconds=2.5))
    assert [sample.outcome for sample in samples] == [Outcome.OK, Outcome.OK, Outcome.TIMEOUT]
    assert samples[2].ended == pytest.approx(2.7)
    assert samples[2].detail == "no answer within 2.5 s"


def test_what_is_due_beyond_the_bound_is_not_sent_and_counts() -> None:
    samples = measured(Queue(1.0), [0.0, 0.1, 0.2, 1.05], Limits(most_in_flight=2))
    assert [sample.outcome for sample in samples] == [Outcome.OK, Outcome.OK, Outcome.UNSENT, Outcome.OK]
    assert percentile(latencies(samples, Latency.E2E), 99) == float("inf")


def test_a_late_generator_says_by_how_much() -> None:
    """What was due while the process stood still is late, and its latency holds the lateness."""

    class Busy(Queue):
        async def ask(self, asked: Asked, sample: Sample, clock: Clock) -> None:
            if sample.number == 0:
                loop = asyncio.get_running_loop()
                loop._skipping.now += 0.5  # type: ignore[attr-defined]  # as if something had held the process
            await super().ask(asked, sample, clock)

    samples = measured(Busy(0.001), [0.0, 0.1, 0.2, 1.0])
    assert [sample.lag for sample in samples] == pytest.approx([0.5, 0.4, 0.3, 0.0], abs=1e-3)
    assert latencies(samples, Latency.E2E) == pytest.approx([0.501, 0.402, 0.303, 0.001], abs=1e-3)
