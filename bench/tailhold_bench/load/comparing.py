"""Two runs side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from tailhold_bench.load.percentiles import Interval, Latency, latencies, percentile, ratio
from tailhold_bench.load.report import LoadReport

_PERCENTS = (50.0, 95.0, 99.0)
_LOAD = ("rate", "shape", "arrivals", "duration", "questionWords", "maxTokens", "repeatShare", "trace", "requests")


@dataclass(frozen=True)
class Compared:
    """A percentile of two runs; milliseconds."""

    latency: Latency
    percent: float
    ours: float
    theirs: float
    ratio: float
    interval: Interval

    @property
    def verdict(self) -> str:
        """Whether they differ for sure."""
        if self.interval.low > 1:
            return "slower"
        return "faster" if self.interval.high < 1 else "no difference shown"


def compare(ours: LoadReport, theirs: LoadReport) -> list[Compared]:
    """Each percentile's ratio, below 1 where `ours` is faster, by a bootstrap of both runs' requests."""
    return list(_compared(ours, theirs))


def _compared(ours: LoadReport, theirs: LoadReport) -> Iterator[Compared]:
    for kind in (Latency.TTFT, Latency.E2E, Latency.GAP):
        here, there = latencies(ours.measured(), kind), latencies(theirs.measured(), kind)
        for percent in _PERCENTS:
            if len(here) and len(there):
                found, around = ratio(here, there, percent)
                yield Compared(
                    kind, percent, 1000 * percentile(here, percent), 1000 * percentile(there, percent), found, around
                )


def different_loads(ours: LoadReport, theirs: LoadReport) -> list[str]:
    """Parameters of the load that are not the same: such a comparison is of loads too."""
    return [
        f"{name}: {ours.command.get(name)} here, {theirs.command.get(name)} there"
        for name in _LOAD
        if ours.command.get(name) != theirs.command.get(name)
    ]
