"""Charts of a report, drawn once: as SVG in the page, together as PNG. Colours by Okabe and Ito, for every eye."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tailhold_bench.load.live import shown
from tailhold_bench.load.percentiles import Latency, latency, percentile
from tailhold_bench.load.report import OUTSIDE, LoadReport, stage_table
from tailhold_bench.load.samples import Outcome, Sample

_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, _YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442",
)  # fmt: skip
_GREY = "#6b6b6b"
_OUTCOMES = {
    Outcome.OK: _GREEN, Outcome.SHED: _ORANGE, Outcome.ERROR: _RED, Outcome.TIMEOUT: _PURPLE, Outcome.CUT: _BLUE,
    Outcome.UNFINISHED: _GREY, Outcome.UNSENT: _YELLOW,
}  # fmt: skip
_STAGES = (_BLUE, _ORANGE, _GREEN, _RED, _PURPLE, _SKY, _YELLOW, "#000000")
_BINS = 60
_IN_A_BIN = 5
_WIDTHS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
_ABOUT_PERCENTILES = (
    "Time to the first text by percentile, from when a request was due. Where the line ends, requests have no answer."
)
_ABOUT_STAGES = "Where the time of an answer goes, by the server's own clock: on average, and in the tail."
_ABOUT_LAG = (
    "How late the generator itself was. What it measures is worth something while this is far below the latencies."
)
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#dcdcdc",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#333333",
    "text.color": "#1a1a1a",
    "axes.labelcolor": "#1a1a1a",
    "xtick.color": "#1a1a1a",
    "ytick.color": "#1a1a1a",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailhold",
    "figure.facecolor": "white",
}
Draw = Callable[[Axes, LoadReport, LoadReport | None], None]


def svg_charts(report: LoadReport, other: LoadReport | None) -> list[tuple[str, str]]:
    """A caption and an SVG element for each chart that has something to show."""
    return [(caption, _svg(draw, report, other)) for caption, draw in _charts(report)]


def write_png(report: LoadReport, other: LoadReport | None, path: Path) -> None:
    """All charts in one picture."""
    charts = _charts(report)
    rows = math.ceil(len(charts) / 2)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(16, 4.2 * rows), layout="constrained")
        for place, (_, draw) in enumerate(charts, 1):
            draw(figure.add_subplot(rows, 2, place), report, other)
        figure.savefig(path, format="png", dpi=110, metadata={"Software": None})


def _svg(draw: Draw, report: LoadReport, other: LoadReport | None) -> str:
    out = io.StringIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        draw(figure.add_subplot(), report, other)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _charts(report: LoadReport) -> list[tuple[str, Draw]]:
    charts: list[tuple[str, Draw]] = [(_ABOUT_PERCENTILES, _first_text), ("The same for the whole answer.", _whole)]
    charts.append(("Latency of answers over the time at which they were due.", _over_time))
    if report.stages:
        charts.append((_ABOUT_STAGES, _stages))
    return [*charts, ("Requests a second that were due, and how they ended.", _rates), (_ABOUT_LAG, _lags)]


def _first_text(axes: Axes, report: LoadReport, other: LoadReport | None) -> None:
    _percentiles(axes, report, other, Latency.TTFT)


def _whole(axes: Axes, report: LoadReport, other: LoadReport | None) -> None:
    _percentiles(axes, report, other, Latency.E2E)


def _percentiles(axes: Axes, report: LoadReport, other: LoadReport | None, kind: Latency) -> None:
    _curve(axes, report, kind, _BLUE, "this run")
    if other is not None:
        _curve(axes, other, kind, _ORANGE, "compared with")
    for each in report.latency(kind).percentiles:
        if math.isfinite(each.low) and math.isfinite(each.high) and math.isfinite(each.milliseconds):
            at = 1 / (1 - each.percent / 100)
            if at <= max(10, report.latency(kind).count):
                error = [[each.milliseconds - each.low], [each.high - each.milliseconds]]
                axes.errorbar(
                    [at], [each.milliseconds], yerr=np.maximum(error, 0), color=_BLUE, capsize=4, fmt="o", ms=4
                )
    axes.set_xscale("log")
    ticks = [0, 50, 90, 99, 99.9, 99.99, 99.999]
    drawn = [percent for percent in ticks if 1 / (1 - percent / 100) <= 1.01 * max(100, report.latency(kind).count)]
    axes.set_xticks([1 / (1 - percent / 100) for percent in drawn], [f"{percent:g} %" for percent in drawn])
    axes.minorticks_off()
    axes.set_xlabel("percentile of all requests (logarithmic towards the tail)")
    axes.set_ylabel("milliseconds")
    axes.set_ylim(bottom=0)
    name = {Latency.TTFT: "Time to first text", Latency.E2E: "Whole answer"}.get(kind, str(kind))
    axes.set_title(f"{name} by percentile")
    _legend(axes)


def _curve(axes: Axes, report: LoadReport, kind: Latency, colour: str, label: str) -> None:
    found = report.latency(kind)
    known = [(1 / (1 - percent / 100), value) for percent, value in found.curve if percent < 100]
    known.append(
        (max(float(found.count), known[-1][0] if known else 1.0), found.curve[-1][1]) if found.curve else (1, 0)
    )
    finite = [(x, y) for x, y in known if math.isfinite(y)]
    axes.step([x for x, _ in finite], [y for _, y in finite], where="post", color=colour, lw=2,
              label=f"{label} (n = {found.count})")  # fmt: skip


def _binned(report: LoadReport) -> tuple[float, list[list[Sample]]]:
    samples = report.columns.samples()
    last = max((s.due for s in samples), default=0.0)
    width = _width(last, len(samples))
    bins: list[list[Sample]] = [[] for _ in range(int(last / width) + 1)]
    for sample in samples:
        bins[int(sample.due / width)].append(sample)
    return width, bins


def _width(seconds: float, count: int) -> float:
    """Of a bin: a round number of seconds, in which some five requests are due."""
    least = seconds / max(1, min(_BINS, count // _IN_A_BIN))
    return next((width for width in _WIDTHS if width >= least), max(least, 0.1))


def _over_time(axes: Axes, report: LoadReport, _: LoadReport | None) -> None:
    answered = [s for s in report.columns.samples() if s.outcome is Outcome.OK]
    for kind, colour, name in ((Latency.E2E, _ORANGE, "whole answer"), (Latency.TTFT, _BLUE, "first text")):
        values = [1000 * latency(s, kind) for s in answered]
        axes.plot([s.due for s in answered], values, ".", color=colour, ms=3, alpha=0.5, rasterized=len(values) > 5000)
        width, bins = _binned(report)
        middles = [(place + 0.5) * width for place in range(len(bins))]
        medians = [1000 * _median([latency(s, kind) for s in each if s.outcome is Outcome.OK]) for each in bins]
        axes.plot(middles, medians, color=colour, lw=2, label=f"{name}, median of {width:g} s")
    _mark_warmup(axes, report)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds from the start, when the request was due")
    axes.set_ylabel("milliseconds")
    axes.set_title("Latency over time")
    _legend(axes)


def _median(values: Sequence[float]) -> float:
    return percentile(np.array(values, np.float64), 50)


def _rates(axes: Axes, report: LoadReport, _: LoadReport | None) -> None:
    width, bins = _binned(report)
    starts = [place * width for place in range(len(bins))]
    bottom = np.zeros(len(bins))
    for outcome, colour in _OUTCOMES.items():
        heights = np.array([sum(s.outcome is outcome for s in each) / width for each in bins])
        if heights.any():
            total = report.outcomes[outcome]
            axes.bar(starts, heights, width, bottom, align="edge", color=colour, edgecolor="white", lw=0.4,
                     label=f"{outcome} ({total})")  # fmt: skip
            bottom += heights
    _mark_warmup(axes, report)
    axes.set_xlabel("seconds from the start, when the request was due")
    axes.set_ylabel("requests a second")
    axes.set_title("Rate and outcomes")
    axes.set_ylim(top=max(1.0, float(bottom.max(initial=0))) * 1.08)
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Beside the title, where it hides nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=4, fontsize=9.5, columnspacing=1.2)


def _mark_warmup(axes: Axes, report: LoadReport) -> None:
    if report.warmup_requests and report.warmup_requests < len(report.columns.due):
        end = report.columns.due[report.warmup_requests]
        axes.axvspan(0, end, color="#eeeeee", zorder=0, label="warm-up")


def _lags(axes: Axes, report: LoadReport, _: LoadReport | None) -> None:
    samples = [s for s in report.columns.samples() if s.lag is not None]
    axes.plot([s.due for s in samples], [max(1e-3, 1000 * (s.lag or 0)) for s in samples], ".", color=_BLUE, ms=3,
              rasterized=len(samples) > 5000)  # fmt: skip
    axes.axhline(report.generator.lag_bound, color=_RED, ls="--", lw=1.5,
                 label=f"bound of the p99, {report.generator.lag_bound:.3g} ms")  # fmt: skip
    axes.axhline(report.generator.lag_p99, color=_BLUE, lw=1.5, label=f"p99, {report.generator.lag_p99:.3g} ms")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("seconds from the start, when the request was due")
    axes.set_ylabel("milliseconds (logarithmic)")
    axes.set_title("The generator's own lag")
    _legend(axes)


def _stages(axes: Axes, report: LoadReport, _: LoadReport | None) -> None:
    whole, table = stage_table(report.measured())
    bands = {
        "all": np.ones(len(whole), bool),
        "fastest half": whole <= percentile(whole, 50),
        "slowest 5 %": whole >= percentile(whole, 95),
    }
    lefts = np.zeros(len(bands))
    for place, (name, values) in enumerate(table.items()):
        means = np.array([values[chosen].mean() for chosen in bands.values()])
        colour = "#bdbdbd" if name == OUTSIDE else _STAGES[place % len(_STAGES)]
        hatch = "//" if place >= len(_STAGES) and name != OUTSIDE else None
        axes.barh(list(bands), means, left=lefts, color=colour, edgecolor="white", hatch=hatch, label=name)
        lefts += means
    for row, total in enumerate(lefts):
        axes.text(total, row, f" {shown(float(total))} ms", va="center")
    axes.set_xlim(right=float(lefts.max()) * 1.15 or 1.0)
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    axes.set_xlabel("mean milliseconds")
    axes.set_title("Where the time goes")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=min(6, len(table)))
