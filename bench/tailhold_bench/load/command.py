"""`tailhold load`: one run, or the search for the highest rate that holds the objectives."""

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from tailhold import __version__
from tailhold_bench.load.capacity import Search, Window, search, window_of
from tailhold_bench.load.comparing import compare, different_loads
from tailhold_bench.load.conducting import Run, conduct
from tailhold_bench.load.errors import LoadError
from tailhold_bench.load.generator import Generator, Limits
from tailhold_bench.load.hints import with_hint
from tailhold_bench.load.live import Progress
from tailhold_bench.load.machine import this_machine
from tailhold_bench.load.objectives import Verdict
from tailhold_bench.load.options import Options
from tailhold_bench.load.printing import print_comparison, print_report
from tailhold_bench.load.questions import Asked
from tailhold_bench.load.report import LoadReport, Setting, read, report_of, write
from tailhold_bench.load.samples import Outcome, Sample
from tailhold_bench.load.schedule import Due
from tailhold_bench.load.target import TargetSettings

TOO_SLOW = 3
"""Exit code: the generator did not keep up."""
NOT_MET = 4
"""Exit code: an objective failed or could not be decided."""
NONE_ANSWERED = 5
"""Exit code: no request was answered."""
STOPPED = 130
_TRIAL_SECONDS = 60.0


@dataclass(frozen=True)
class Files:
    """Where reports go."""

    folder: Path | None
    compare: Path | None = None


def load(console: Console, options: Options, files: Files, *, accept_slow: bool = False) -> int:
    """One run with its reports; the exit code."""
    options.judged()
    other = read(files.compare) if files.compare else None
    report = measure(console, options)
    print_report(console, report)
    if other and files.compare:
        for difference in different_loads(report, other):
            console.print(f"not the same load: {difference}", style="yellow", highlight=False, markup=False)
        print_comparison(console, compare(report, other), str(files.compare))
    if files.folder:
        save(console, report, files.folder, other)
    return exit_code(report, accept_slow=accept_slow)


def measure(console: Console, options: Options) -> LoadReport:
    """Try the target once, run, and work the samples out. Raises LoadError."""
    objectives, target, due, limits = options.judged(), options.target(), options.schedule(), options.limits
    try_once(target, options.url)
    with Progress(console, due) as progress:
        run = conduct(due, target, limits, processes=options.processes, on_progress=progress)
    return report_of(_complete(run, due.due), _setting(options, run, due.distinct), objectives)


def try_once(target: TargetSettings, url: str) -> None:
    """One short question, in no figure: a wrong address or key is found before a load runs into it.

    Raises LoadError. A server that is full is a server.
    """
    sample = asyncio.run(_tried(target))
    if sample.outcome in (Outcome.OK, Outcome.SHED):
        return
    raise LoadError(f"--url {url}: the first question was not answered: {with_hint(sample.detail, url)}")


async def _tried(settings: TargetSettings) -> Sample:
    samples: list[Sample] = []
    target = settings.open()
    start = asyncio.get_running_loop().time()
    generator = Generator(target, Limits(_TRIAL_SECONDS), start, samples.append)
    await generator.send([Due(0, 0.0, Asked("Are you there?", 1))])
    await generator.drain()
    await target.close()
    return samples[0]


def _complete(run: Run, due: Sequence[Due]) -> list[Sample]:
    """With what was due before the run was stopped, and never began: none at all when nothing was due yet."""
    if not run.interrupted:
        return run.samples
    known = {sample.number for sample in run.samples}
    until = max((sample.due for sample in run.samples), default=0.0)
    missing = [
        Sample(each.number, each.at, each.asked.max_tokens, detail="the run was stopped")
        for each in due
        if each.number not in known and each.at <= until
    ]
    return sorted(run.samples + missing, key=lambda sample: sample.number)


def _setting(options: Options, run: Run, distinct: int) -> Setting:
    return Setting(
        version=__version__,
        began=datetime.fromtimestamp(run.began, UTC).isoformat(timespec="seconds"),
        command=options.command(),
        machine=this_machine(),
        distinct_questions=distinct,
        interrupted=run.interrupted,
        warmup_seconds=options.warmup_seconds,
        cpu_shares=run.cpu_shares,
        bounds=options.bounds,
    )


def exit_code(report: LoadReport, *, accept_slow: bool) -> int:
    """The worst that is to be said: stopped, nothing answered, too slow a generator, an objective not met."""
    if report.interrupted:
        return STOPPED
    if not report.outcomes[Outcome.OK]:
        return NONE_ANSWERED
    if not (report.generator.valid or accept_slow):
        return TOO_SLOW
    return NOT_MET if any(each.verdict is not Verdict.PASS for each in report.objectives) else 0


def save(console: Console, report: LoadReport, folder: Path, other: LoadReport | None) -> None:
    """load.json, load.html and load.png. Raises LoadError."""
    from tailhold_bench.load.charts import write_png
    from tailhold_bench.load.page import page

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write(report, folder / "load.json")
        (folder / "load.html").write_text(page(report, other))
        write_png(report, other, folder / "load.png")
    except OSError as error:
        raise LoadError(f"--output {folder}: {error}") from None
    console.print(f"written: {shlex.quote(str(folder))}/load.json, load.html, load.png", highlight=False, markup=False)


def find_capacity(console: Console, options: Options, plan: Search, *, accept_slow: bool = False) -> int:
    """Print each window and the highest rate that held; 0 where there is one."""
    if not options.objectives:
        raise LoadError("--find-capacity needs an objective, as in --objective ttft=500ms@95")

    def window(rate: float) -> Window:
        report = measure(console, options.at_rate(rate))
        if report.interrupted:
            raise KeyboardInterrupt
        found = window_of(rate, report, accept_slow=accept_slow)
        console.print(str(found), highlight=False, markup=False, soft_wrap=True)
        return found

    found = search(plan, window)
    console.print(str(found), style="bold", highlight=False, markup=False, soft_wrap=True)
    if found.holds is None:
        return TOO_SLOW if found.too_fast else NOT_MET
    return 0
