"""What /proc tells of processes: of real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tailhold_server.processes import Effort, family, is_stopped

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
COMPUTES = "print('up', flush=True)\nwhile True: pass"
WAITS_FOR_ITSELF = (
    "import threading, time; lock = threading.Lock(); lock.acquire(); print('up', flush=True)\n"
    "def poll():\n"
    "    while True: time.sleep(0.2)\n"
    "threading.Thread(target=poll, daemon=True).start(); lock.acquire()"
)
STARTS_ONE = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
    "print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def started() -> Iterator:
    """Python programs that say a word when they are up."""
    running: list[subprocess.Popen[str]] = []

    def start(program: str) -> tuple[int, str]:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return process.pid, process.stdout.readline().strip()

    yield start
    for process in running:
        for pid in reversed(family([process.pid])):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def works(pid: int, looks: int = 3) -> list[bool]:
    """Whether it worked, at looks half a second apart; the first has nothing to compare with."""
    effort, found = Effort(), []
    for _ in range(looks + 1):
        found.append(effort.is_at_work([pid], time.monotonic()))
        time.sleep(0.5)
    return found[1:]


def test_one_that_computes_works(started) -> None:
    assert works(started(COMPUTES)[0]) == [True] * 3


@pytest.mark.parametrize(
    ("program", "met"),
    [(SLEEPS, 1), (WAITS_FOR_ITSELF, 3)],
    ids=["sleeps", "deadlocked beside a thread that polls"],
)
def test_one_that_waits_does_not(started, program: str, met: int) -> None:
    """A thread that polls may be met while it looks around, the more often the busier the machine."""
    assert works(started(program)[0], looks=6).count(True) <= met


def test_one_that_was_stopped_does_not_work_and_is_known_to_be_stopped(started) -> None:
    pid, _ = started(COMPUTES)
    assert not is_stopped([pid])
    os.kill(pid, signal.SIGSTOP)
    assert works(pid) == [False] * 3
    assert is_stopped([pid])
    os.kill(pid, signal.SIGCONT)
    assert works(pid) == [True] * 3
    assert not is_stopped([pid])


def test_what_a_process_started_counts_as_its_own(started) -> None:
    pid, child = started(STARTS_ONE)
    assert family([pid]) == [pid, int(child)]


def test_one_that_cannot_be_looked_at_is_taken_to_work() -> None:
    assert Effort().is_at_work([2**22 + 1], time.monotonic())
    assert not is_stopped([2**22 + 1])
