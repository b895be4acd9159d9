"""The load generator beside aiperf, on one server with one schedule: run it by `bench/second_opinion.sh --help`.

They take turns, `--turns` times, since the machine changes under both, after one run of ours that is not counted: from
then on the server's caches hold what both ask for. aiperf counts latency from when it sent a
request, the load generator from when the request was due, and both are given here for the latter: what differs is
their lag.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console

from tailhold_bench.load.command import measure
from tailhold_bench.load.options import Options
from tailhold_bench.load.percentiles import Latency, Values, interval, latencies, percentile
from tailhold_bench.load.samples import Sample
from tailhold_bench.load.schedule import Due

_NAMES = {"first token": ("time_to_first_token", Latency.TTFT), "whole answer": ("request_latency", Latency.E2E)}
Measured = dict[str, Values]
"""Seconds by name."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiperf", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", required=True, help="folder of the model's tokenizer; aiperf wants one")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="without it the first that the server names")
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--duration", default="120s")
    parser.add_argument("--max-tokens", default="8")
    parser.add_argument("--turns", type=int, default=2, help="of each (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    options = Options(
        url=args.url,
        rate=args.rate,
        duration=args.duration,
        max_tokens=args.max_tokens,
        seed=args.seed,
        timeout="10m",
        model=args.model or _first_model(args.url),
    )
    _ours(options)
    ours: list[Measured] = []
    theirs: list[Measured] = []
    for turn in range(args.turns):
        first, second = (ours, theirs) if turn % 2 == 0 else (theirs, ours)
        for runs in (first, second):
            runs.append(_ours(options) if runs is ours else _theirs(args.aiperf, args.tokenizer, options))
    for line in table(_joined(ours), _joined(theirs)):
        print(line)
    return 0


def _ours(options: Options) -> Measured:
    report = measure(Console(stderr=True), options)
    print(f"tailhold load: {report.generator.verdict}", file=sys.stderr)
    return _of_samples(report.measured())


def _of_samples(samples: Sequence[Sample]) -> Measured:
    return {name: latencies(samples, kind) for name, (_, kind) in _NAMES.items()}


def _theirs(aiperf: Path, tokenizer: str, options: Options) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        trace.write_text("".join(json.dumps(line) + "\n" for line in mooncake(options.schedule().due)))
        _run(aiperf, trace, Path(folder) / "out", tokenizer, options)
        return _of_records((Path(folder) / "out" / "profile_export.jsonl").read_text())


def mooncake(due: Sequence[Due]) -> Iterator[dict[str, Any]]:
    """A schedule as aiperf replays it."""
    for each in due:
        question, tokens = each.asked
        yield {"timestamp": round(1000 * each.at, 3), "text_input": question, "output_length": tokens}


def _first_model(url: str) -> str:
    return str(httpx.get(f"{url}/models", trust_env=False).json()["data"][0]["id"])


def _run(aiperf: Path, trace: Path, out: Path, tokenizer: str, options: Options) -> None:
    told = {
        "--model": str(options.model),
        "--url": options.url.removesuffix("/v1"),
        "--endpoint-type": "chat",
        "--input-file": str(trace),
        "--custom-dataset-type": "mooncake-trace",
        "--output-artifact-dir": str(out),
        "--tokenizer": tokenizer,
        "--extra-inputs": "temperature:0",
        "--ui": "none",
        "--log-level": "warning",
        "--workers-max": "1",
    }
    flags = ["--streaming", "--fixed-schedule", "--no-server-metrics", "--no-gpu-telemetry", "--use-server-token-count"]
    words = [word for pair in told.items() for word in pair]
    done = subprocess.run([str(aiperf), "profile", *words, *flags], capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise SystemExit(f"aiperf failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def _of_records(text: str) -> Measured:
    records = [json.loads(line) for line in text.splitlines()]
    return {
        name: np.array([record["metrics"][theirs]["value"] / 1000 for record in records])
        for name, (theirs, _) in _NAMES.items()
    }


def _joined(runs: Sequence[Measured]) -> Measured:
    return {name: np.concatenate([run[name] for run in runs]) for name in _NAMES}


def table(ours: Measured, theirs: Measured) -> Iterator[str]:
    """Lines in Markdown."""
    yield "| milliseconds | n ours / aiperf | tailhold load (95 % interval) | aiperf (95 % interval) | ratio |"
    yield "|---|---|---|---|---|"
    for name in _NAMES:
        for percent in (50.0, 90.0, 95.0):
            cells = [_cell(values, percent) for values in (ours[name], theirs[name])]
            ratio = percentile(ours[name], percent) / percentile(theirs[name], percent)
            counts = f"{len(ours[name])} / {len(theirs[name])}"
            yield f"| {name} p{percent:g} | {counts} | {' | '.join(cells)} | {ratio:.3f} |"


def _cell(values: Values, percent: float) -> str:
    around = interval(values, percent)
    return f"{1000 * percentile(values, percent):.0f} ({1000 * around.low:.0f} to {1000 * around.high:.0f})"


if __name__ == "__main__":
    sys.exit(main())
