"""How long a start takes with the real vLLM, of several trees of sources in turn: `--tree OLD --tree NEW --pairs 3`.

The trees take turns on one machine, so that what else it does meets all of them alike; the order changes with each
round. The index is built before the first start, and files are in the page cache: what is compared is the start itself.
"""

import argparse
import os
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tailhold_bench.demo_server import ROOT, prepare, serving


def main() -> None:
    """Print each start with its steps, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tree", type=Path, action="append", help="root of a source tree; this one where none is given"
    )
    parser.add_argument("--pairs", type=int, default=3, help="starts of each")
    arguments = parser.parse_args()
    trees = [tree.resolve() for tree in arguments.tree or [ROOT]]
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        with serving(Path(folder), trees[0]):
            print("index built, files read")
        _compare(Path(folder), trees, arguments.pairs)


def _compare(folder: Path, trees: list[Path], pairs: int) -> None:
    took: dict[Path, list[float]] = {tree: [] for tree in trees}
    worked: dict[Path, list[float]] = {tree: [] for tree in trees}
    for number in range(pairs):
        for tree in trees if number % 2 == 0 else reversed(trees):
            before = _cpu_seconds()
            with serving(folder, tree) as served:
                took[tree].append(served.seconds)
                steps = _steps(served.tuning()["phases"])
            print(
                f"{tree.name}: ready after {took[tree][-1]:.1f} s, load {os.getloadavg()[0]:.1f}: {steps}", flush=True
            )
            worked[tree].append(_cpu_seconds() - before)
    for tree, seconds in took.items():
        cpu = statistics.median(worked[tree])
        print(f"{tree.name}: median {statistics.median(seconds):.1f} s, {cpu:.1f} s of CPU, of {len(seconds)}")


def _cpu_seconds() -> float:
    """Of all processes that ended, from their start to their end: on a busy machine it says more than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _steps(phases: Any) -> str:
    """Of this release a table, of the ones before a time for each."""
    if isinstance(phases, dict):
        return ", ".join(f"{name} {milliseconds} ms" for name, milliseconds in phases.items())
    told = "{name} {beganMilliseconds}+{milliseconds} ms ({overlappedMilliseconds} overlapped)"
    return ", ".join(told.format_map(row) for row in phases)


if __name__ == "__main__":
    main()
