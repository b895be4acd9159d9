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
    report: LoadReport

    @property
    def holds(self) -> bool:
        """All objectives pass, measured by a generator that kept up."""
        return self.report.generator.valid and all(each.verdict is Verdict.PASS for each in self.report.objectives)

    def __str__(self) -> str:
        said = [each.text for each in self.report.objectives]
        lost = sum(self.report.outcomes.values()) - self.report.outcomes[Outcome.OK]
        said += [f"{lost} without an answer"] if lost else []
        said += [] if self.report.generator.valid else [self.report.generator.verdict]
        return f"{self.rate:8.2f}/s {'holds' if self.holds else 'breaks'}: {'; '.join(said)}"


@dataclass(frozen=True)
class Capacity:
    """The outcome: between the highest rate that held and the lowest that broke."""

    holds: float | None
    breaks: float | None
    """None: nothing broke up to the highest rate that was allowed, or the generator could not say."""
    windows: int
    because: str = ""

    def __str__(self) -> str:
        if self.holds is None:
            return f"no rate held, down to {self.breaks:g} a second{self.because}"
        if self.breaks is None:
            return f"capacity: at least {self.holds:.2f} requests a second{self.because or ', the most that was tried'}"
        return (
            f"capacity: {self.holds:.2f} requests a second hold, {self.breaks:.2f} do not "
            f"({self.windows} windows; a longer --duration makes each surer)"
        )


def search(plan: Search, measure: Callable[[float], Window]) -> Capacity:
    """Each rate is measured once."""
    holds: float | None = None
    breaks: float | None = None
    rate, count = plan.first, 0
    while count < plan.windows:
        window = measure(rate)
        count += 1
        if not window.report.generator.valid:
            return Capacity(holds, None if holds else rate, count, ": the generator did not keep up beyond it")
        holds, breaks = (rate, breaks) if window.holds else (holds, rate)
        following = _following(plan, holds, breaks)
        if following is None:
            break
        rate = following
    return Capacity(holds, breaks, count)


def _following(plan: Search, holds: float | None, breaks: float | None) -> float | None:
    """The next rate; None when it is known well enough."""
    if breaks is None:
        assert holds is not None  # noqa: S101  one of them is always known
        return None if holds >= plan.most else min(2 * holds, plan.most)
    if holds is None:
        return breaks / 2
    return None if breaks <= holds * (1 + plan.precision) else (holds + breaks) / 2
