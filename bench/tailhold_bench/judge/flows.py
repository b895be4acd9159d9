"""Latencies as queues make them: independent ones, and such that come in clusters."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Latencies: TypeAlias = NDArray[np.float32]
Flow: TypeAlias = Callable[[np.random.Generator, int, int, int], Latencies]
"""From a generator, the sides, runs and requests to latencies of that shape. What makes load come and go is the same
for all sides of a run, because they answer over the same minutes; all else is their own."""

_SETTLING = 500
"""Requests before the first one that counts: queues begin empty."""


def independent(rng: np.random.Generator, sides: int, runs: int, requests: int) -> Latencies:
    """Log-normal, sigma 0.5."""
    return rng.lognormal(0.0, 0.5, (sides, runs, requests)).astype(np.float32)


def fixed_service(load: float) -> Flow:
    """M/D/1: Poisson arrivals, one request at a time, all alike."""
    return lambda rng, sides, runs, requests: _queue(_gaps(rng, sides, runs, requests, np.float64(load)))


def bursts(load: float, ratio: float = 1.6, mean_requests: int = 300) -> Flow:
    """M/D/1 whose load is `ratio` times the mean in half of the phases, which last as long as chance wants."""

    def flow(rng: np.random.Generator, sides: int, runs: int, requests: int) -> Latencies:
        turns = rng.random((runs, requests + _SETTLING)) < 1 / mean_requests
        high = (np.cumsum(turns, axis=1) + rng.integers(0, 2, (runs, 1))) % 2 == 1
        return _queue(_gaps(rng, sides, runs, requests, np.where(high, load * ratio, load * (2 - ratio))))

    return flow


def daily(load: float, swing: float = 0.25, period: int = 20_000) -> Flow:
    """M/D/1 whose load goes up and down by `swing` in so many requests; a run begins at any hour."""

    def flow(rng: np.random.Generator, sides: int, runs: int, requests: int) -> Latencies:
        hour = rng.random((runs, 1)) + np.arange(requests + _SETTLING) / period
        return _queue(_gaps(rng, sides, runs, requests, load * (1 + swing * np.sin(2 * np.pi * hour))))

    return flow


def batches(load: float, most: int = 16, fixed: float = 4.0, each: float = 0.5) -> Flow:
    """A server that takes all that wait, up to `most`, and needs `fixed` + `each` times their number for them."""
    capacity = most / (fixed + each * most)

    def flow(rng: np.random.Generator, sides: int, runs: int, requests: int) -> Latencies:
        arrivals = np.cumsum(_gaps(rng, sides, runs, requests, np.float64(load * capacity)), axis=-1)
        flat = arrivals.reshape(sides * runs, -1)
        return _batched(flat, most, fixed, each)[:, _SETTLING:].reshape(sides, runs, requests)

    return flow


FLOWS: Mapping[str, Flow] = {
    "independent": independent,
    "M/D/1 at 50 %": fixed_service(0.5),
    "M/D/1 at 70 %": fixed_service(0.7),
    "M/D/1 at 80 %": fixed_service(0.8),
    "batches at 70 %": batches(0.7),
    "batches at 85 %": batches(0.85),
    "bursts, mean 60 %": bursts(0.6),
    "daily cycle, mean 65 %": daily(0.65),
}


def thresholds(flow: Flow, shares: Sequence[float], *, seed: int = 99) -> tuple[float, ...]:
    """The latencies that these shares of the requests are beyond, from twenty million others than the judged ones."""
    rng, parts = np.random.default_rng(seed), 4
    found = [np.quantile(flow(rng, 1, 1000, 5000), [1 - share for share in shares]) for _ in range(parts)]
    return tuple(float(each) for each in np.mean(found, axis=0))


def _gaps(
    rng: np.random.Generator, sides: int, runs: int, requests: int, load: NDArray[np.float64] | np.float64
) -> NDArray[np.float64]:
    return rng.exponential(1.0, (sides, runs, requests + _SETTLING)) / load


def _queue(gaps: NDArray[np.float64]) -> Latencies:
    """Lindley's recursion with a service time of 1."""
    latencies = np.empty(gaps.shape, dtype=np.float32)
    waiting = np.zeros(gaps.shape[:-1])
    for number in range(gaps.shape[-1]):
        latencies[..., number] = waiting + 1
        waiting = np.maximum(0, waiting + 1 - gaps[..., number])
    return latencies[..., _SETTLING:]


def _batched(arrivals: NDArray[np.float64], most: int, fixed: float, each: float) -> Latencies:
    runs, requests = arrivals.shape
    arrivals = np.concatenate([arrivals, np.full((runs, most), np.inf)], axis=1)
    latencies = np.zeros((runs, requests + most), dtype=np.float32)
    next_, clock = np.zeros(runs, dtype=np.int64), np.zeros(runs)
    rows, places = np.arange(runs)[:, None], np.arange(most)
    while (next_ < requests).any():
        at = np.minimum(next_, requests)[:, None] + places
        waiting = arrivals[rows, at]
        clock = np.where(np.isfinite(waiting[:, 0]), np.maximum(clock, waiting[:, 0]), clock)
        taken = waiting <= clock[:, None]
        size = taken.sum(axis=1)
        clock += np.where(size > 0, fixed + each * size, 0)
        latencies[rows, at] = np.where(taken, clock[:, None] - waiting, latencies[rows, at])
        next_ += size
    return latencies[:, :requests]
