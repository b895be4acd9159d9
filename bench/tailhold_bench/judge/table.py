"""The tables of the judge: errors, power and cost, each with its seed and the number of runs."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.stats import beta, mannwhitneyu

from tailhold_bench.judge.flows import FLOWS, Flow, Latencies, independent, thresholds
from tailhold_bench.judge.looking import FAILS, PASSES, SINGLY, Found, cells, first
from tailhold_operator.judge.comparison import Limit

ALLOWED = 0.01
LIMIT = Limit(allowed=ALLOWED, margin=ALLOWED)
_LOWER = (0.02, 0.05, 0.1, 0.2, 0.3)
"""Shares beyond the thresholds below the objective's, as a histogram has them."""


@dataclass(frozen=True)
class Cell:
    """One line of a table."""

    flow: str
    what: str
    found: Found

    @property
    def runs(self) -> int:
        """How many were simulated."""
        return len(self.found)

    @property
    def share(self) -> float:
        """Of the runs in which it was found."""
        return float((self.found >= 0).mean())

    @property
    def highest(self) -> float:
        """With 97.5 % confidence the share is below this (Clopper and Pearson)."""
        hits = int((self.found >= 0).sum())
        return 1.0 if hits == self.runs else float(beta.ppf(0.975, hits + 1, self.runs - hits))

    def within(self, requests: int) -> float:
        """Share of the runs in which it was found within so many requests."""
        return float(((self.found >= 0) & (self.found <= requests)).mean())

    def quantile(self, share: float) -> float:
        """Requests after which this share of all runs had found it; infinite where they never did."""
        return float(np.quantile(np.where(self.found >= 0, self.found, np.inf), share, method="inverted_cdf"))


@dataclass(frozen=True)
class Plan:
    """How much is simulated."""

    runs: int
    requests: int
    seed: int
    size: int = 25
    """Requests in a cell."""
    part: int = 500
    """Runs at a time."""


class Part(Protocol):
    """Some runs of a table."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Whose thresholds it needs."""

    def __call__(self, rng: np.random.Generator, flow: Flow, at: Sequence[float]) -> dict[str, Found]:
        """What was found in some runs, by what was looked for; `at` are the thresholds of `shares`."""


@dataclass(frozen=True)
class FalseFails:
    """A candidate exactly at its limit: alone, and beside a stable side that is at the limit too."""

    plan: Plan
    shares: tuple[float, ...] = (ALLOWED,)

    def __call__(self, rng: np.random.Generator, flow: Flow, at: Sequence[float]) -> dict[str, Found]:
        """Some runs of this flow."""
        sides = flow(rng, 2, self.plan.part, self.plan.requests)
        candidate, stable = (cells(each, at[0], (), self.plan.size) for each in sides)
        return {
            "false Fail, each request taken for news": first(candidate, None, LIMIT, SINGLY),
            "false Fail, alone": first(candidate, None, LIMIT, FAILS),
            "false Fail, beside one alike": first(candidate, stable, LIMIT, FAILS),
        }


@dataclass(frozen=True)
class Caught:
    """A candidate with too many bad requests, alone and beside a stable side with half of what is allowed."""

    plan: Plan
    share: float

    @property
    def shares(self) -> tuple[float, ...]:
        """The candidate's and the stable side's."""
        return self.share, ALLOWED / 2

    def __call__(self, rng: np.random.Generator, flow: Flow, at: Sequence[float]) -> dict[str, Found]:
        """Some runs of this flow."""
        slow, kept = flow(rng, 2, self.plan.part, self.plan.requests)
        candidate, stable = cells(slow, at[0], (), self.plan.size), cells(kept, at[1], (), self.plan.size)
        return {
            f"Fail at {self.share:.0%}, alone": first(candidate, None, LIMIT, FAILS),
            f"Fail at {self.share:.0%}, beside 0.5 %": first(candidate, stable, LIMIT, FAILS),
        }


@dataclass(frozen=True)
class Passes:
    """A candidate like the stable side, which has half of what is allowed, and one worse by exactly the margin."""

    plan: Plan
    shares: tuple[float, ...] = (1.5 * ALLOWED, ALLOWED / 2, *_LOWER)

    def __call__(self, rng: np.random.Generator, flow: Flow, at: Sequence[float]) -> dict[str, Found]:
        """Some runs of this flow."""
        beyond, within, *lower = at
        alike, kept = flow(rng, 2, self.plan.part, self.plan.requests)
        sides = (cells(each, within, tuple(lower), self.plan.size) for each in (alike, alike * (within / beyond), kept))
        candidate, worse, stable = sides
        return {
            "Pass of one alike at 0.5 %": first(candidate, stable, LIMIT, PASSES, every=4),
            "false Pass, worse by the margin": first(worse, stable, LIMIT, PASSES, every=4),
        }


def simulated(plan: Plan, part: Part, flows: Sequence[str], jobs: int) -> Iterator[Cell]:
    """Line by line; each part of the runs has a seed of its own, so that the figures do not depend on `jobs`."""
    with ProcessPoolExecutor(jobs) as pool:
        limits = {name: pool.submit(_thresholds, name, part.shares) for name in flows}
        for name in flows:
            at = limits[name].result()
            calls = [pool.submit(_one, part, plan.seed, number, name, at) for number in range(plan.runs // plan.part)]
            found = [call.result() for call in calls]
            for what in found[0]:
                yield Cell(name, what, np.concatenate([each[what] for each in found]))


def _thresholds(name: str, shares: tuple[float, ...]) -> tuple[float, ...]:
    return thresholds(FLOWS[name], shares)


def _one(part: Part, seed: int, number: int, name: str, at: tuple[float, ...]) -> dict[str, Found]:
    return part(np.random.default_rng([seed, number]), FLOWS[name], at)


def clusters(plan: Plan) -> Iterator[tuple[str, list[float]]]:
    """Of each flow the design effect at shares from 30 % to 0.5 %, in blocks of 3,200 requests."""
    for name, flow in FLOWS.items():
        latencies = flow(np.random.default_rng(plan.seed), 1, 400, 38_400)[0]
        yield name, [_long_run_effect(latencies, share) for share in (0.3, 0.1, 0.05, 0.02, 0.01, 0.005)]


def beside_mann_whitney(plan: Plan, requests: int = 1000) -> Iterator[tuple[str, float]]:
    """Log-normal latencies (median 100 ms, sigma 0.25); 2 % of the candidate's requests take 200 ms longer."""
    rng, at = np.random.default_rng(plan.seed), 200.0
    base = 100 * np.sqrt(independent(rng, 2, plan.runs, requests))
    candidate = base[0] + 200 * (rng.random(base[0].shape) < 0.02)
    ranks = mannwhitneyu(candidate, base[1], axis=1, alternative="greater").pvalue
    slow, kept = (cells(each, at, (), plan.size) for each in (candidate, base[1]))
    yield "share of the stable side beyond 200 ms", float((base[1] > at).mean())
    yield "share of the candidate beyond 200 ms", float((candidate > at).mean())
    yield "power of Mann-Whitney, one look at the end", float((ranks <= 0.05).mean())
    alone = first(slow, None, LIMIT, FAILS)
    yield "power of the judge without a stable side, a look each cell", float((alone >= 0).mean())
    yield (
        "power of the judge beside the stable side, a look each cell",
        float((first(slow, kept, LIMIT, FAILS) >= 0).mean()),
    )


def _long_run_effect(latencies: Latencies, share: float) -> float:
    counts = cells(latencies, float(np.quantile(latencies, 1 - share)), (), 3200)
    blocks = np.array([each.bad for each in counts])
    return float(blocks.var() / (blocks.mean() * (1 - share)))
