"""A report in the terminal."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tailhold_bench.load.comparing import Compared
from tailhold_bench.load.live import shown
from tailhold_bench.load.percentiles import Latency, latency
from tailhold_bench.load.report import LoadReport
from tailhold_bench.load.samples import Outcome

NAMES = {
    Latency.TTFT: "first token",
    Latency.E2E: "whole answer",
    Latency.TTFB: "first byte",
    Latency.GAP: "longest gap",
    Latency.TPOT: "per further token",
}

_NOT_ANSWERED = {
    Outcome.SHED: "the server said that it was full",
    Outcome.ERROR: "refused, or no connection",
    Outcome.TIMEOUT: "given up",
    Outcome.CUT: "an answer without an end",
    Outcome.UNFINISHED: "under way when the run was stopped",
    Outcome.UNSENT: "more than --max-in-flight",
}
"""What each word means."""


def print_report(console: Console, report: LoadReport) -> None:
    """Counts, latencies with intervals, stages, objectives, and whether the generator kept up."""
    for line in lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(_latencies(report))
    if report.stages:
        console.print(_stages(report))
    for objective in report.objectives:
        style = {"pass": "green", "fail": "red"}.get(objective.verdict, "yellow")
        console.print(objective.text, style=style, highlight=False, markup=False, soft_wrap=True)
    style = "green" if report.generator.valid else "red"
    console.print(report.generator.verdict, style=style, highlight=False, markup=False, soft_wrap=True)


def lines(report: LoadReport) -> Iterator[str]:
    """What is said in sentences."""
    if report.made_up:
        yield (
            f"A STAND-IN ENGINE ANSWERED, no model: the latencies of {report.made_up} answers are those that its"
            " manifest states, and what queues and the machine add. They say nothing about serving"
        )
    yield from _counts(report)
    if report.interrupted:
        yield "stopped by Ctrl-C: what was under way counts as unfinished"
    little = report.in_flight.little_mean_seconds
    if little is not None:
        yield (
            f"under way at once: {report.in_flight.mean:.2f} on average, {report.in_flight.peak} at most; by Little's "
            f"law a request stays {shown(1000 * little)} ms on average"
        )
    if traces := slowest_traces(report):
        yield f"traces of the slowest: {', '.join(traces)}"
    for fault in report.faults[:5]:
        yield f"  {fault.count} x {fault.outcome}: {fault.detail}"
    if len(report.faults) > 5:
        yield f"  and {len(report.faults) - 5} more kinds of fault; with -o they stand in load.json"


def _counts(report: LoadReport) -> Iterator[str]:
    """Offered, then what came of it: each with the time that its rate is over."""
    counts, rates = report.outcomes, report.rates
    total = sum(counts.values())
    offered = f": {rates.due:.2f} a second" if rates.due is not None else ""
    yield f"offered: {total} requests in {rates.due_seconds:.1f} s{offered}"
    tokens = f", {rates.output_tokens:.1f} tokens a second" if rates.output_tokens is not None else ""
    until = ", until the last answer came" if rates.seconds > rates.due_seconds else ""
    yield f"answered: {counts[Outcome.OK]} in {rates.seconds:.1f} s{until}: {rates.answered:.2f} a second{tokens}"
    if rest := [f"{counts[each]} {each} ({about})" for each, about in _NOT_ANSWERED.items() if counts[each]]:
        yield f"not answered: {', '.join(rest)}"


def slowest_traces(report: LoadReport, count: int = 3) -> list[str]:
    """Ids of the slowest answers' traces: where to look first."""
    samples = [sample for sample in report.measured() if sample.trace]
    ordered = sorted(samples, key=lambda sample: latency(sample, Latency.E2E), reverse=True)
    return [sample.trace for sample in ordered[:count]]


def _latencies(report: LoadReport) -> Table:
    table = Table(title="milliseconds from when a request was due (95 % interval)", title_justify="left")
    table.add_column("")
    table.add_column("n", justify="right")
    for percent in (50, 95, 99):
        table.add_column(f"p{percent}", justify="right")
    for row in report.latencies:
        cells = [
            f"{shown(each.milliseconds)} ({shown(each.low)} to {shown(each.high)})"
            for each in row.percentiles
            if each.percent in (50, 95, 99)
        ]
        if cells:
            table.add_row(NAMES[row.name], str(row.count), *cells)
    return table


def _stages(report: LoadReport) -> Table:
    table = Table(title="stages by the server's own clock, milliseconds", title_justify="left")
    for name in ("stage", "n", "mean", "p50", "p95", "p99", "mean in the slowest 5 %"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for stage in report.stages:
        figures = (stage.mean, stage.p50, stage.p95, stage.p99, stage.mean_of_slowest)
        table.add_row(stage.name, str(stage.count), *(shown(each) for each in figures))
    return table


def print_comparison(console: Console, compared: list[Compared], other: str) -> None:
    """This run beside another."""
    table = Table(title=f"against {other}", title_justify="left")
    for name in ("", "this ms", "other ms", "ratio", "95 % interval", ""):
        table.add_column(name, justify="right" if name else "left")
    for each in compared:
        name = f"{NAMES[each.latency]} p{each.percent:g}"
        around = f"{each.interval.low:.3f} to {each.interval.high:.3f}"
        table.add_row(name, shown(each.ours), shown(each.theirs), f"{each.ratio:.3f}", around, each.verdict)
    console.print(table)
