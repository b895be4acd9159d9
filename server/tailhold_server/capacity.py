"""How many requests a second a pod can carry, from its measured rates.

Without an objective the answer is the throughput limit. A request keeps the engine busy for

    S(n) = fresh / prefill + answer / decode(n)        seconds, with n streams beside each other

where `fresh` are the prompt tokens that are not in the cache, `prefill` the measured tokens per second of one prompt
and `decode(n)` those that all n streams gain together (the measured batch curve). At most N requests run: the limit of
the engine or, where it is less, of its KV cache. More than 1 / S(N) requests a second cannot be carried; nor more than
the retrieval thread embeds and searches.

For an objective on the time to the first token prompts are taken for an M/G/1 queue, first come first served: one takes
s = fresh / prefill, stretched by the share of the engine that decoding takes. The mean wait is Pollaczek's and
Khinchine's, its tail is taken for exponential: P(wait > t) = r exp(-r t / mean), exact for exponential service.

For an objective on the whole answer the engine is a processor shared by those that run, with the rate 1 / S(n) at n
(a symmetric queue in Kelly's sense, so that only the mean of the lengths matters for the mean time), first come first
served beyond N. What a request takes more than on an idle engine is taken for exponential.

Assumed throughout: Poisson arrivals, requests alike but for the spread of their prompts, no request given up. Bursts,
long answers among short ones and a cache that empties carry less than this says.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

_STEPS = 40


class Measure(StrEnum):
    """What an objective is about."""

    FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105  no secret
    WHOLE_ANSWER = "EndToEnd"


@dataclass(frozen=True)
class Objective:
    """`percent` of requests within `seconds`."""

    measure: Measure
    seconds: float
    percent: float


@dataclass(frozen=True)
class Rates:
    """Tokens per second; None and empty where nothing was measured."""

    prefill: float | None
    stream: float | None
    """One stream's."""
    curve: tuple[tuple[int, float], ...] = ()
    """All streams' together, by how many there are, ascending."""

    @property
    def all_streams(self) -> float | None:
        """The most that streams together were seen to gain."""
        return max((value for _, value in self.curve), default=self.stream)

    def decode(self, streams: float) -> float | None:
        """All streams' together: in proportion below the first point, straight between two, no more than the last."""
        points = self.curve or (((1, self.stream),) if self.stream else ())
        if not points:
            return None
        lower, low = 0.0, 0.0
        for upper, high in points:
            if streams <= upper:
                return low + (high - low) * (streams - lower) / (upper - lower)
            lower, low = upper, high
        return low


@dataclass(frozen=True)
class Shape:
    """What requests are like, on average."""

    prompt_tokens: float
    fresh_tokens: float
    """Of the prompt, those that are not in the cache."""
    answer_tokens: float
    lookup_seconds: float = 0.0
    """Embedding and search, as many at once as came together."""
    spread: float = 1.0
    """Variance of `fresh_tokens` over its square."""
    answers: int = 0
    """That were seen; 0 for one that is assumed."""


@dataclass(frozen=True)
class Limits:
    """Of the engine."""

    running: int
    cache_tokens: int | None = None
    """Of the KV cache; None where it is not known."""
    prompts: int = 1
    """Prompts that are computed beside each other, each as fast as one alone: 1 where they share a card."""


@dataclass(frozen=True)
class Capacity:
    """What can be carried, and what keeps it from being more."""

    requests_per_second: float
    limited_by: str
    """`engine`, `cache` (the engine, with fewer at once than it may), `retrieval` or `objective`."""
    why: str


def capacity(rates: Rates, shape: Shape, limits: Limits, objective: Objective | None = None) -> Capacity | None:
    """None where the rates are not known."""
    at_once = _at_once(shape, limits)
    rates = replace(rates, prefill=rates.prefill * limits.prompts if rates.prefill else None)
    seconds = engine_seconds(rates, shape, at_once)
    if seconds is None:
        return None
    most = _throughput(shape, limits, at_once, seconds)
    if objective is None:
        return most
    within = _within(rates, shape, at_once, objective)
    found = _largest(within, most.requests_per_second)
    if found >= most.requests_per_second * (1 - 2**-20):
        return most
    text = f"{objective.percent:g} % of {objective.measure} within {objective.seconds:g} s"
    why = text if found else f"not even one request alone keeps {text}"
    return Capacity(found, "objective", why)


def engine_seconds(rates: Rates, shape: Shape, streams: float) -> float | None:
    """How long a request keeps the engine busy where `streams` run beside each other."""
    decode = rates.decode(streams)
    if not rates.prefill or not decode:
        return None
    return shape.fresh_tokens / rates.prefill + shape.answer_tokens / decode


def _at_once(shape: Shape, limits: Limits) -> int:
    if limits.cache_tokens is None:
        return limits.running
    fit = int(limits.cache_tokens / max(1.0, shape.prompt_tokens + shape.answer_tokens))
    return max(1, min(limits.running, fit))


def _throughput(shape: Shape, limits: Limits, at_once: int, seconds: float) -> Capacity:
    engine = 1 / seconds
    if shape.lookup_seconds and 1 / shape.lookup_seconds < engine:
        why = f"embedding and search take {1000 * shape.lookup_seconds:.1f} ms a question"
        return Capacity(1 / shape.lookup_seconds, "retrieval", why)
    why = f"a request takes {seconds:.3f} s of the engine where {at_once} run"
    return Capacity(engine, "engine" if at_once == limits.running else "cache", why)


def _within(rates: Rates, shape: Shape, at_once: int, objective: Objective) -> Callable[[float], bool]:
    allowed = 1 - objective.percent / 100
    missed = _misses_first_token if objective.measure is Measure.FIRST_TOKEN else _misses_whole_answer

    def within(load: float) -> bool:
        return missed(rates, shape, at_once, load, objective.seconds) <= allowed

    return within


def _misses_first_token(rates: Rates, shape: Shape, at_once: int, load: float, seconds: float) -> float:
    prefill, decode = rates.prefill or math.inf, rates.decode(at_once) or math.inf
    own = shape.fresh_tokens / prefill / (1 - load * shape.answer_tokens / decode)
    busy, left = load * own, seconds - shape.lookup_seconds - own
    if busy >= 1 or left < 0:
        return 1.0
    mean = busy * own * (1 + shape.spread) / (2 * (1 - busy))
    return busy * math.exp(-busy * left / mean) if mean else 0.0


def _misses_whole_answer(rates: Rates, shape: Shape, at_once: int, load: float, seconds: float) -> float:
    service = [engine_seconds(rates, shape, streams) or math.inf for streams in range(1, at_once + 1)]
    own = shape.lookup_seconds + service[0]
    if load * service[-1] >= 1 or seconds < own:
        return 1.0
    more = max(0.0, shape.lookup_seconds + _mean_seconds(service, load) - own)
    return math.exp(-(seconds - own) / more) if more > 0 else 0.0


def _mean_seconds(service: list[float], load: float) -> float:
    """Mean time in a queue that ends one request in `service[n - 1]` seconds where n are there, the last beyond it.

    By Little's law from the chances of each number; those beyond the last are a geometric series.
    """
    if load <= 0:
        return service[0]
    weight, total, held = 1.0, 1.0, 0.0
    for count, seconds in enumerate(service, 1):
        weight *= load * seconds
        total += weight
        held += count * weight
    ratio, last = load * service[-1], len(service)
    total += weight * ratio / (1 - ratio)
    held += weight * (last * ratio / (1 - ratio) + ratio / (1 - ratio) ** 2)
    return held / total / load


def _largest(holds: Callable[[float], bool], most: float) -> float:
    """The largest load up to `most` at which it holds; it holds below each at which it does."""
    if not holds(most * 1e-6):
        return 0.0
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
