"""A report as one HTML file that needs nothing else: no script, no font, no picture from elsewhere."""

import json
from collections.abc import Iterable
from html import escape

from tailhold_bench.load.charts import svg_charts
from tailhold_bench.load.comparing import compare, different_loads
from tailhold_bench.load.live import shown
from tailhold_bench.load.printing import NAMES, lines
from tailhold_bench.load.report import LoadReport

_STYLE = """
body { font: 16px/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .5rem 0; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .7rem; border-bottom: 1px solid #d0d0d0; }
th { border-bottom: 2px solid #333; } th:first-child, td:first-child { text-align: left; }
small { color: #444; white-space: nowrap; } figure { margin: 1.2rem 0 2rem; }
figcaption { color: #333; font-size: .95rem; }
svg { width: 100%; height: auto; } pre { background: #f4f4f4; padding: .8rem; overflow-x: auto; font-size: .85rem; }
.good, .bad, .doubt { padding: .5rem .8rem; border-left: .4rem solid; background: #f4f4f4; margin: .4rem 0; }
.good { border-color: #009E73; } .bad { border-color: #D55E00; } .doubt { border-color: #E69F00; }
"""
_CLASSES = {"pass": "good", "fail": "bad", "undecided": "doubt"}


def page(report: LoadReport, other: LoadReport | None) -> str:
    """The whole file."""
    parts = [
        "<h1>Load test</h1>",
        f"<p>{escape(str(report.command['url']))}, {escape(report.began)}, Tailhold {escape(report.version)}</p>",
        *_verdicts(report),
        "".join(f"<p>{escape(line)}</p>" for line in lines(report)),
        "<h2>Latency</h2>",
        _latency_table(report),
        *([_stage_table(report)] if report.stages else []),
        *([_comparison(report, other)] if other else []),
        "<h2>Charts</h2>",
        *(f"<figure>{svg}<figcaption>{escape(text)}</figcaption></figure>" for text, svg in svg_charts(report, other)),
        "<h2>How it was measured</h2>",
        f"<p>{escape(_method(report))}</p>",
        f"<pre>{escape(json.dumps(report.command, indent=1, default=str))}</pre>",
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Load test</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _verdicts(report: LoadReport) -> Iterable[str]:
    for objective in report.objectives:
        yield f'<div class="{_CLASSES[objective.verdict]}">{escape(objective.text)}</div>'
    yield f'<div class="{"good" if report.generator.valid else "bad"}">{escape(report.generator.verdict)}</div>'


def _latency_table(report: LoadReport) -> str:
    head = ["milliseconds", "requests", "p50", "p90", "p95", "p99", "p99.9"]
    rows = [
        [
            NAMES[each.name],
            str(each.count),
            *(
                f"{shown(found.milliseconds)}<br><small>{shown(found.low)} to {shown(found.high)}</small>"
                for found in each.percentiles
            ),
        ]
        for each in report.latencies
        if each.percentiles
    ]
    about = (
        "From when a request was due, not from when it was sent. Requests without an answer count as slower than any; "
        "“none” is a percentile that falls among them. Below each figure is its 95 % interval."
    )
    return f"<p>{about}</p>{_table(head, rows)}"


def _stage_table(report: LoadReport) -> str:
    head = ["stage, milliseconds", "requests", "mean", "p50", "p95", "p99", "mean in the slowest 5 %"]
    rows = [
        [escape(s.name), str(s.count), *(shown(value) for value in (s.mean, s.p50, s.p95, s.p99, s.mean_of_slowest))]
        for s in report.stages
    ]
    return _table(head, rows)


def _comparison(report: LoadReport, other: LoadReport) -> str:
    head = ["", "this run, ms", "other, ms", "ratio", "95 % interval", ""]
    rows = [
        [
            f"{NAMES[each.latency]} p{each.percent:g}",
            shown(each.ours),
            shown(each.theirs),
            f"{each.ratio:.3f}",
            f"{each.interval.low:.3f} to {each.interval.high:.3f}",
            each.verdict,
        ]
        for each in compare(report, other)
    ]
    differences = "".join(
        f'<div class="doubt">not the same load: {escape(d)}</div>' for d in different_loads(report, other)
    )
    return f"<h2>Compared with the run of {escape(other.began)}</h2>{differences}{_table(head, rows)}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th>{each}</th>" for each in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _method(report: LoadReport) -> str:
    machine = report.machine
    lag = report.generator
    return (
        f"Open loop from {machine.cores} cores of {machine.processor}, {machine.system}, Python {machine.python}. "
        f"{report.distinct_questions} different questions. {report.warmup_requests} requests of the warm-up are in no "
        f"figure. The generator was late by {lag.lag_p50:.3f} ms in the median, {lag.lag_p99:.3f} at p99, "
        f"{lag.lag_max:.3f} at most, and took {', '.join(f'{share:.0%}' for share in lag.cpu_shares)} of a core for "
        f"each process. Intervals are of a moving-block bootstrap, since neighbours in a queue are alike."
    )
