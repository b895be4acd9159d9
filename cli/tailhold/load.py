"""`tailhold load`: its options and what it says of itself. The work is in tailhold_bench, imported when asked for."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tailhold.given import check_given

_ASKED = "What is asked"
_WHEN = "When"
_JUDGED = "What comes of it"
_TARGET = "Where it goes"
_GENERATOR = "The generator itself"


def load(
    url: Annotated[
        str,
        typer.Option(
            help="Where the pipeline is served, ending in /v1; grpc://HOST:PORT, with TLS grpcs://, for its gRPC.",
            rich_help_panel=_TARGET,
        ),
    ] = "http://127.0.0.1:8000/v1",
    rate: Annotated[
        float,
        typer.Option(min=0.001, help="Requests a second; with a shape its first or mean rate.", rich_help_panel=_WHEN),
    ] = 1.0,
    duration: Annotated[
        str,
        typer.Option(help="How long requests are due: 30s, 5m. Answers may come later.", rich_help_panel=_WHEN),
    ] = "30s",
    requests: Annotated[
        int | None, typer.Option(min=1, help="End after so many, if that is earlier.", rich_help_panel=_WHEN)
    ] = None,
    arrivals: Annotated[
        str, typer.Option(help="poisson (independent clients) or constant (even gaps).", rich_help_panel=_WHEN)
    ] = "poisson",
    shape: Annotated[
        str,
        typer.Option(
            help="The rate over time: steady, ramp:to=50, steps:10,20,40, or bursts:factor=5,tail=1.5 "
            "(with burst=2s and quiet=18s, mean lengths).",
            rich_help_panel=_WHEN,
        ),
    ] = "steady",
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Replay a trace instead: JSONL or CSV, our own, Mooncake's or Azure's; see the how-to.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    trace_speed: Annotated[
        float, typer.Option(min=0.001, help="Replay it so many times as fast.", rich_help_panel=_WHEN)
    ] = 1.0,
    warmup: Annotated[
        str | None,
        typer.Option(help="Requests due in this first time count in no figure: 10s.", rich_help_panel=_WHEN),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed sends the same load.", rich_help_panel=_WHEN)] = 1,
    questions: Annotated[
        Path | None,
        typer.Option(help="Ask these: .txt (one a line), .yaml, or .jsonl with `question`.", rich_help_panel=_ASKED),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Make questions of the words of this folder's documents; without it, of a few words.",
            rich_help_panel=_ASKED,
        ),
    ] = None,
    question_words: Annotated[
        str,
        typer.Option(
            help="Length of made questions: 12, 5-20, or lognormal:median=12 (with sigma=0.6,most=200).",
            rich_help_panel=_ASKED,
        ),
    ] = "12",
    max_tokens: Annotated[str, typer.Option(help="Longest answer, in the same forms.", rich_help_panel=_ASKED)] = "16",
    repeat_share: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of questions that were asked before, out of a hot set of 20.",
            rich_help_panel=_ASKED,
        ),
    ] = 0.0,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="0 for the likeliest token each time.", rich_help_panel=_ASKED)
    ] = 0.0,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="ttft=100ms@95: 95 % of requests within 100 ms. Also e2e, ttfb, gap, tpot. May be repeated.",
            rich_help_panel=_JUDGED,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for load.json, load.html and load.png.", rich_help_panel=_JUDGED),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="A load.json of another run to compare with.", rich_help_panel=_JUDGED)
    ] = None,
    find_capacity: Annotated[
        bool,
        typer.Option(
            "--find-capacity",
            help="Search the highest rate that holds the objectives, from --rate up.",
            rich_help_panel=_JUDGED,
        ),
    ] = False,
    max_rate: Annotated[
        float, typer.Option(min=0.001, help="With --find-capacity: try no higher rate.", rich_help_panel=_JUDGED)
    ] = 1000.0,
    model: Annotated[
        str | None, typer.Option(help="Name of the model, for servers that ask for one.", rich_help_panel=_TARGET)
    ] = None,
    usage: Annotated[
        bool, typer.Option(help="Ask the server for token counts, which gRPC always gives.", rich_help_panel=_TARGET)
    ] = True,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="TAILHOLD_API_KEY", help="Sent as a bearer token; kept out of reports.", rich_help_panel=_TARGET
        ),
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust, PEM.", rich_help_panel=_TARGET)] = None,
    this_target_is_mine: Annotated[
        bool,
        typer.Option(
            "--this-target-is-mine",
            help="Load a server outside this machine and private networks.",
            rich_help_panel=_TARGET,
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option(help="Give a request up so long after it was due.", rich_help_panel=_GENERATOR)
    ] = "60s",
    max_in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            help="In each process; what is due beyond it is not sent and counts as failed.",
            rich_help_panel=_GENERATOR,
        ),
    ] = 4096,
    processes: Annotated[int, typer.Option(min=1, max=64, help="That send.", rich_help_panel=_GENERATOR)] = 1,
    max_lag: Annotated[
        str | None,
        typer.Option(
            help="Bound of its own lag at p99; without it 1 % of the median latency, at least 1ms.",
            rich_help_panel=_GENERATOR,
        ),
    ] = None,
    accept_slow_generator: Annotated[
        bool,
        typer.Option(
            "--accept-slow-generator", help="Go by the figures although it did not keep up.", rich_help_panel=_GENERATOR
        ),
    ] = False,
) -> None:
    """Load a served pipeline and say how long its answers take, from when each request was due.

    Requests leave on schedule, however slow the answers are, as people's do.
    A server that stands still for a second has delayed every request of that
    second, and the figures show it. Whoever has no answer counts as slower
    than any. What the generator itself was late by is reported; too much makes
    the run invalid.

    \b
    Half a request a second for a minute, with a report to look at:
      tailhold load --rate 0.5 --duration 1m -o report
    Bursts with a long tail, a third of the questions asked before:
      tailhold load --shape bursts:factor=8 --repeat-share 0.3
    Does it hold a promise?
      tailhold load --objective ttft=500ms@95 --objective e2e=2s@99
    Before and after a change, once with -o before:
      tailhold load -o after --compare before/load.json
    Over gRPC, with a key and TLS:
      tailhold load --url grpcs://127.0.0.1:9000 --ca-file ca.pem
    How much can it take?
      tailhold load --find-capacity --objective ttft=1s@95

    \b
    Exit codes:
      0  all well
      1  a mistake in what was asked
      3  the generator was too slow
      4  an objective was not met, or not decided
      5  nothing was answered
    130  Ctrl-C; the report is of what was measured until then
    """
    try:
        from tailhold_bench.load.arrivals import Spacing
        from tailhold_bench.load.capacity import Search
        from tailhold_bench.load.command import Files
        from tailhold_bench.load.command import find_capacity as find
        from tailhold_bench.load.command import load as run
        from tailhold_bench.load.options import Options
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"{error.name} is missing: install tailhold[bench]", param_hint="load") from None

    for file in (questions, trace, ca_file):
        if file is not None:
            check_given(file)
    if arrivals not in set(Spacing):
        raise typer.BadParameter(f"{arrivals!r}: poisson or constant", param_hint="--arrivals")
    options = Options(
        url=url, rate=rate, shape=shape, arrivals=Spacing(arrivals), duration=duration, requests=requests,
        warmup=warmup, trace=trace, trace_speed=trace_speed, questions=questions, corpus=corpus,
        question_words=question_words, max_tokens=max_tokens, repeat_share=repeat_share, seed=seed, model=model,
        temperature=temperature, usage=usage, api_key=api_key, ca_file=ca_file, timeout=timeout,
        max_in_flight=max_in_flight, processes=processes, max_lag=max_lag, this_target_is_mine=this_target_is_mine,
        objectives=tuple(objective or ()),
    )  # fmt: skip
    if find_capacity:
        sys.exit(find(Console(), options, Search(rate, max_rate), accept_slow=accept_slow_generator))
    sys.exit(run(Console(), options, Files(output, compare), accept_slow=accept_slow_generator))
