"""What is seen while a load runs."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tailhold_bench.load.conducting import Run
from tailhold_bench.load.percentiles import Latency, latencies, percentile
from tailhold_bench.load.samples import Outcome
from tailhold_bench.load.schedule import Schedule

_LINE_SECONDS = 10.0


class Progress:
    """A small table that is drawn anew on a terminal, a line every ten seconds elsewhere."""

    def __init__(self, console: Console, schedule: Schedule) -> None:
        self._console = console
        self._due = [each.at for each in schedule.due]
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._said = time.monotonic()

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, run: Run) -> None:
        """Draw what is known."""
        now = time.monotonic()
        if self._live:
            if now - self._said > 0.25:
                self._said = now
                self._live.update(_table(rows(run, self._due)))
        elif now - self._said > _LINE_SECONDS:
            self._said = now
            said = (f"{name} {value}" for name, value in rows(run, self._due))
            self._console.print("  ".join(said), highlight=False, soft_wrap=True)


def rows(run: Run, due: Sequence[float]) -> list[tuple[str, str]]:
    """Name and value of each figure so far."""
    samples, seconds = list(run.samples), run.seconds
    sent = sum(at <= seconds for at in due)
    counts = {outcome: sum(s.outcome is outcome for s in samples) for outcome in Outcome}
    failed = len(samples) - counts[Outcome.OK] - counts[Outcome.SHED]
    lags = latencies_of_lag(run)
    return [
        ("time", f"{seconds:.0f} s"),
        ("due", f"{sent}/{len(due)}"),
        ("in flight", str(max(0, sent - len(samples)))),
        ("ok", str(counts[Outcome.OK])),
        ("shed", str(counts[Outcome.SHED])),
        ("failed", str(failed)),
        *((f"{kind} p50/p95/p99", _three(run, kind)) for kind in (Latency.TTFT, Latency.E2E)),
        ("lag p99", f"{lags:.2f} ms"),
    ]


def latencies_of_lag(run: Run) -> float:
    """Milliseconds, of the newest thousand."""
    lags = sorted(s.lag for s in run.samples[-1000:] if s.lag is not None)
    return 1000 * lags[max(0, int(0.99 * len(lags)) - 1)] if lags else 0.0


def _three(run: Run, kind: Latency) -> str:
    values = latencies(run.samples, kind)
    return " / ".join(shown(1000 * percentile(values, percent)) for percent in (50, 95, 99)) + " ms"


def shown(milliseconds: float) -> str:
    """A time in as many digits as it deserves; a dash for none, `none` where no answer came."""
    if milliseconds != milliseconds:
        return "-"
    if milliseconds == float("inf"):
        return "none"
    return (
        f"{milliseconds:.2f}"
        if milliseconds < 10
        else f"{milliseconds:.1f}"
        if milliseconds < 100
        else f"{milliseconds:.0f}"
    )


def _table(found: Sequence[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in found:
        table.add_row(name, value)
    return table
