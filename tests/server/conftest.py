"""Programs with stand-in models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program_process import ServerProcess, Starter, pace, starter

from tailhold_local.jaeger import Jaeger, running
from tailhold_server.audit.auditor import ChainAuditor
from tailhold_server.audit.journal import Journal


@pytest.fixture
def start_stand_in(tmp_path: Path) -> Iterator[Starter]:
    """Programs of a test's own."""
    with starter(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One program for the tests that leave it as it was. It speaks ten words a second."""
    with starter(tmp_path_factory.mktemp("shared")) as start:
        yield start(stand_in=pace(0.1))


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """The real one, built once from its Go module: five minutes on two cores, kept in the folder of caches."""
    with running(tmp_path_factory.mktemp("jaeger")) as found:
        yield found


@pytest.fixture
def chained(tmp_path: Path) -> Any:
    """An auditor in this process, for tests of what is recorded."""

    class Uncounted:
        def recorded(self, records: int, seconds: float) -> None: ...

        def not_recorded(self, records: int) -> None: ...

    def make(root: Path = tmp_path) -> ChainAuditor:
        about = {"pipeline": "docs", "pod": "pod"}
        journal = Journal(root / "docs" / "pod", about, lambda: 365, Uncounted())
        journal.open()
        journal.start()
        return ChainAuditor(journal, "p" * 64)

    return make
