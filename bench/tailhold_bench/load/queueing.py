"""What queueing theory says of one server with equal service times and Poisson arrivals (M/D/1)."""

import math
from collections.abc import Iterable, Iterator


def mean_wait(service_seconds: float, load: float) -> float:
    """Seconds in the queue, by Pollaczek and Khinchine; `load` is the share of time in which the server works."""
    return load * service_seconds / (2 * (1 - load))


def share_waiting_at_most(seconds: float, service_seconds: float, load: float) -> float:
    """Erlang's sum. Its terms alternate: good to six digits up to a load of 0.9 and twenty services."""
    rate = load / service_seconds
    terms = []
    for number in range(math.floor(seconds / service_seconds) + 1):
        left = rate * (seconds - number * service_seconds)
        terms.append((-left) ** number / math.factorial(number) * math.exp(left))
    return (1 - load) * math.fsum(terms)


def time_in_system_percentile(percent: float, service_seconds: float, load: float) -> float:
    """Seconds from arrival to the end of the service that `percent` of requests do not exceed."""
    low, high = 0.0, 20 * service_seconds
    if share_waiting_at_most(0.0, service_seconds, load) >= percent / 100:
        return service_seconds
    while high - low > 1e-6 * service_seconds:
        middle = (low + high) / 2
        if share_waiting_at_most(middle, service_seconds, load) < percent / 100:
            low = middle
        else:
            high = middle
    return service_seconds + high


def times_in_system(arrivals: Iterable[float], service_seconds: float) -> Iterator[float]:
    """Of each of these very arrivals, by Lindley's recursion: what theory says without any luck in it."""
    free_at = 0.0
    for at in arrivals:
        free_at = max(at, free_at) + service_seconds
        yield free_at - at
