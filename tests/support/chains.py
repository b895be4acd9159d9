"""Chains of audit records as a server writes them, and what is said of them."""

import asyncio
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tailhold.main import app
from tailhold_server.audit.journal import Journal
from tailhold_server.audit.record import Head
from tailhold_server.audit.verify import Report

DAY = 86400.0


class Counts:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.written = 0
        self.failed = 0

    def recorded(self, records: int, seconds: float) -> None:
        self.written += records

    def not_recorded(self, records: int) -> None:
        self.failed += records


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def journal(folder: Path, *, days: int = 365, clock: Clock | None = None, **more: Any) -> Journal:
    about = {"pipeline": folder.parent.name, "pod": folder.name}
    return Journal(folder, about, lambda: days, Counts(), clock=clock or Clock(), **more)


def written(folder: Path, records: int, **more: Any) -> Head:
    """One process: it opens, writes, and ends as it should."""

    async def run() -> Head:
        made = journal(folder, **more)
        made.open()
        made.start()
        for number in range(records):
            await made.put(lambda number=number: {"kind": "note", "number": number})  # type: ignore[misc]
        await asyncio.to_thread(made.close)
        return made.head

    return asyncio.run(run())


def words(report: Report) -> list[str]:
    return [finding.words for finding in report.findings]


def run_verify(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["audit", "verify", *words])
    return done.exit_code, done.output
