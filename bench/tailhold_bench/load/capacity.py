"""The highest rate at which the objectives hold: double until they break, then halve the distance."""

from collections.abc import Callable
from dataclasses import dataclass

from tailhold_bench.load.objectives import Verdict
from tailhold_bench.load.report import LoadReport
from tailhold_bench.load.samples import Outcome


@dataclass(frozen=True)
class Search:
    """How to look."""

    first: float
    """Rate of the first window."""
    most: float
    """No window has a higher one."""
    precision: float = 0.1
    """Ends when the rate that breaks is at most so much above the one that holds, as a share."""
    windows: int = 12
    """Ends after so many."""


@dataclass(frozen=True)
class Window:
    """A run at one rate."""

    rate: float
    holds: bool
    """Whether all objectives pass."""
    is_valid: bool = True
    """Whether the generator kept up, or nobody minds that it did not."""
    details: str = ""

    def __str__(self) -> str:
        said = ("holds" if self.holds else "breaks") if self.is_valid else "says nothing"
        return f"{self.rate:8.2f}/s {said}: {self.details}"


def window_of(rate: float, report: LoadReport, *, accept_slow: bool) -> Window:
    """What a run says of its rate."""
    said = [each.text for each in report.objectives]
    lost = sum(report.outcomes.values()) - report.outcomes[Outcome.OK]
    said += [f"{lost} without an answer"] if lost else []
    said += [] if report.generator.valid else [report.generator.verdict]
    holds = all(each.verdict is Verdict.PASS for each in report.objectives)
    return Window(rate, holds, report.generator.valid or accept_slow, "; ".join(said))


@dataclass(frozen=True)
class Capacity:
    """The outcome: between the highest rate that held and the lowest that broke."""

    holds: float | None
    """None: none did."""
    breaks: float | None
    """None: none did."""
    windows: int
    too_fast: float | None = None
    """A rate at which the generator did not keep up, which ended the search."""

    def __str__(self) -> str:
        ended = f"; at {self.too_fast:.2f} the generator itself did not keep up" if self.too_fast else ""
        many = f"({self.windows} windows; a longer --duration makes each surer)"
        if self.holds is None and self.breaks is None:
            return f"capacity: unknown{ended}"
        if self.holds is None:
            return f"capacity: below {self.breaks:.2f} requests a second, the least that was tried{ended} {many}"
        if self.breaks is None:
            return f"capacity: at least {self.holds:.2f} requests a second, the most that was tried{ended} {many}"
        return f"capacity: {self.holds:.2f} requests a second hold, {self.breaks:.2f} do not{ended} {many}"


def search(plan: Search, measure: Callable[[float], Window]) -> Capacity:
    """Each rate is measured once."""
    holds: float | None = None
    breaks: float | None = None
    rate: float | None = plan.first
    count = 0
    while rate is not None and count < plan.windows:
        window = measure(rate)
        count += 1
        if not window.is_valid:
            return Capacity(holds, breaks, count, rate)
        holds, breaks = (rate, breaks) if window.holds else (holds, rate)
        rate = _following(plan, holds, breaks)
    return Capacity(holds, breaks, count)


def _following(plan: Search, holds: float | None, breaks: float | None) -> float | None:
    """The next rate; None when it is known well enough."""
    if breaks is None:
        assert holds is not None  # noqa: S101  one of them is always known
        return None if holds >= plan.most else min(2 * holds, plan.most)
    if holds is None:
        return breaks / 2
    return None if breaks <= holds * (1 + plan.precision) else (holds + breaks) / 2
