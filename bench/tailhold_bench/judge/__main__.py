"""`python -m tailhold_bench.judge`: the tables, printed as they come."""

from collections.abc import Iterable
from math import isinf
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console

from tailhold_bench.judge.flows import FLOWS
from tailhold_bench.judge.table import Caught, Cell, FalseFails, Passes, Plan, beside_mann_whitney, clusters, simulated

app = typer.Typer(no_args_is_help=True, add_completion=False, help="How often the judge is wrong, and what it costs.")
console = Console(width=140)

Runs = Annotated[int, typer.Option(help="Runs of each line.", min=500)]
Requests = Annotated[int, typer.Option(help="Requests of the candidate in each run.", min=200)]
Seed = Annotated[int, typer.Option(help="Other seeds draw other requests.")]
Size = Annotated[int, typer.Option(help="Requests between two looks.", min=1)]
Jobs = Annotated[int, typer.Option(help="Processes side by side.", min=1)]
Only = Annotated[str, typer.Option("--flow", help="Only flows whose name contains this.")]


@app.command("errors")
def errors(
    runs: Runs = 10_000, requests: Requests = 20_000, seed: Seed = 1, size: Size = 25, flow: Only = "", jobs: Jobs = 1
) -> None:
    """A candidate exactly at its limit, looked at after each cell: how often it is failed (level 5 %)."""
    plan = Plan(runs, requests, seed, size)
    _print(plan, simulated(plan, FalseFails(plan), _flows(flow), jobs))


@app.command("power")
def power(
    runs: Runs = 10_000,
    requests: Requests = 20_000,
    seed: Seed = 2,
    size: Size = 25,
    flow: Only = "",
    jobs: Jobs = 1,
    share: Annotated[float, typer.Option(help="The candidate's true share of bad requests; 0.01 is allowed.")] = 0.03,
) -> None:
    """A candidate beyond its limit: how soon it is failed."""
    plan = Plan(runs, requests, seed, size)
    _print(plan, simulated(plan, Caught(plan, share), _flows(flow), jobs))


@app.command("passing")
def passing(
    runs: Runs = 10_000, requests: Requests = 20_000, seed: Seed = 3, size: Size = 25, flow: Only = "", jobs: Jobs = 1
) -> None:
    """A candidate like the stable side: how soon it passes; and one worse by the margin: how often it does."""
    plan = Plan(runs, requests, seed, size)
    _print(plan, simulated(plan, Passes(plan), _flows(flow), jobs))


@app.command("clusters")
def show_clusters(seed: Seed = 4) -> None:
    """How many requests count as one, by the share that is beyond a threshold."""
    console.print("| flow | 30 % | 10 % | 5 % | 2 % | 1 % | 0.5 % |\n|---|---|---|---|---|---|---|")
    for name, effects in clusters(Plan(400, 38_400, seed)):
        console.print(f"| {name} | " + " | ".join(f"{each:.1f}" for each in effects) + " |")


@app.command("ranks")
def ranks(runs: Runs = 10_000, seed: Seed = 5) -> None:
    """Power beside Mann-Whitney's on the same requests: 2 % of the candidate's take 200 ms longer, 1,000 a side."""
    for what, share in beside_mann_whitney(Plan(runs, 1000, seed)):
        console.print(f"| {what} | {share:.3f} |")


def _flows(part: str) -> list[str]:
    return [name for name in FLOWS if part in name]


def _print(plan: Plan, lines: Iterable[Cell]) -> None:
    console.print(f"{plan.runs:,} runs of {plan.requests:,} requests, seed {plan.seed}, a look each {plan.size}")
    console.print("| flow | what | share of runs | below (97.5 %) | in 700 | requests: 10 % | median | 90 % | s |")
    console.print("|---|---|---|---|---|---|---|---|---|")
    begun = monotonic()
    for line in lines:
        quantiles = " | ".join(_count(line.quantile(each)) for each in (0.1, 0.5, 0.9))
        shares = f"{line.share:.4f} | {line.highest:.4f} | {line.within(700):.4f}"
        console.print(f"| {line.flow} | {line.what} | {shares} | {quantiles} | {monotonic() - begun:.0f} |")


def _count(requests: float) -> str:
    return "-" if isinf(requests) else f"{requests:,.0f}"


if __name__ == "__main__":
    app()
