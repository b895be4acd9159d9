"""The load generator against queueing theory, over real sockets: `python -m tailhold_bench.load_truth --help`.

The server is one queue with equal service times (M/D/1), so the percentiles of all such queues are known, and for a
run's very arrivals each time. What differs from these is the sockets, the lag of both, and what else the machine does.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from rich.console import Console

from tailhold_bench.load.command import measure
from tailhold_bench.load.options import Options
from tailhold_bench.load.percentiles import Latency, interval, latencies, percentile
from tailhold_bench.load.queueing import time_in_system_percentile, times_in_system

_PERCENTS = (50.0, 95.0, 99.0)
_HEAD = (
    "| load | n | of all such queues, p50 / p95 / p99 ms | of these very arrivals | measured | to these arrivals "
    "| 95 % interval of the p99 | lag p50 / p99 ms | generator |\n|---|---|---|---|---|---|---|---|---|"
)


@contextmanager
def stand_in(*arguments: str) -> Iterator[str]:
    """The known server in a process of its own; its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tailhold_bench.load.stand_in", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None  # noqa: S101  it is a pipe
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service-ms", type=float, default=18.4, help="of each request (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=120, help="for each load (default: %(default)s)")
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.7, 0.8], help="share of time at work")
    args = parser.parse_args()
    service = args.service_ms / 1000
    print(_HEAD)
    with stand_in("--service-ms", str(args.service_ms)) as url:
        for load in args.loads:
            print(_row(url, service, load, args.seconds), flush=True)
    return 0


def _row(url: str, service: float, load: float, seconds: int) -> str:
    report = measure(Console(stderr=True), Options(url=url, rate=load / service, duration=f"{seconds}s", seed=11))
    measured = latencies(report.measured(), Latency.E2E)
    exact = np.array(list(times_in_system(report.columns.due, service)))
    theory = [1000 * time_in_system_percentile(percent, service, load) for percent in _PERCENTS]
    known = [1000 * percentile(exact, percent) for percent in _PERCENTS]
    found = [1000 * percentile(measured, percent) for percent in _PERCENTS]
    around = interval(measured, 99)
    ratios = " / ".join(f"{ours / truth:.3f}" for ours, truth in zip(found, known, strict=True))
    lag = f"{report.generator.lag_p50:.2f} / {report.generator.lag_p99:.2f}"
    said = "kept up" if report.generator.valid else "invalid"
    return (
        f"| {load} | {len(measured)} | {_three(theory)} | {_three(known)} | {_three(found)} | {ratios} "
        f"| {1000 * around.low:.0f} to {1000 * around.high:.0f} | {lag} | {said} |"
    )


def _three(milliseconds: list[float]) -> str:
    return " / ".join(f"{each:.1f}" for each in milliseconds)


if __name__ == "__main__":
    sys.exit(main())
