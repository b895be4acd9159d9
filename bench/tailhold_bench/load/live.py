"""What is seen while a load runs."""

import math
import time
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tailhold_bench.load.conducting import Run
from tailhold_bench.load.percentiles import Latency, latencies, percentile
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Schedule

_LINE_SECONDS = 10.0
_NEWEST = 5000


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
    """Name and value of each figure so far; percentiles are of the newest requests, so that they cost little."""
    newest = run.samples[-_NEWEST:]
    sent, ended, counts = bisect_right(due, run.seconds), len(run.samples), run.counts
    lags = np.array([s.lag for s in newest if s.lag is not None], np.float64)
    return [
        ("time", f"{run.seconds:.0f} s"),
        ("due", f"{sent}/{len(due)}"),
        ("in flight", str(max(0, sent - ended))),
        ("ok", str(counts[Outcome.OK])),
        ("shed", str(counts[Outcome.SHED])),
        ("failed", str(ended - counts[Outcome.OK] - counts[Outcome.SHED])),
        *((f"{kind} p50/p95/p99", _three(newest, kind)) for kind in (Latency.TTFT, Latency.E2E)),
        ("lag p99", f"{shown(1000 * percentile(lags, 99))} ms"),
    ]


def _three(samples: Sequence[Sample], kind: Latency) -> str:
    values = latencies(samples, kind)
    return " / ".join(shown(1000 * percentile(values, percent)) for percent in (50, 95, 99)) + " ms"


def shown(milliseconds: float) -> str:
    """A time in as many digits as it deserves; a dash for none, `none` where no answer came."""
    if math.isnan(milliseconds):
        return "-"
    if math.isinf(milliseconds):
        return "none"
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f}"


def _table(found: Sequence[tuple[str, str]]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in found:
        table.add_row(name, value)
    return table
