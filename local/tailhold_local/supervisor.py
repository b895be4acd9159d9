"""Process 1 of a cluster: keeps its components running and takes them all with it when it ends.

It runs in a process namespace of its own, so the kernel ends every component, container and shim when this
process is killed, however that happens.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tailhold_local import cgroups
from tailhold_local.plan import Component, Holder, Plan

RESTART_AFTER = 1.0


@dataclass
class Running:
    """A component and its process, if it has one now."""

    component: Component
    pid: int | None = None
    due: float = 0.0


def run(plan: Plan) -> None:
    """Make the namespaces, then start what is not running and reap what has ended, for ever."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    cgroups.enter_system(plan.cgroup)
    for holder in plan.holders:
        hold(holder)
    all_running = [Running(component) for component in plan.components]
    while True:
        for running in all_running:
            if running.pid is None and running.due <= time.monotonic():
                running.pid = start(running.component, plan.logs)
        caught = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, 0.5)
        if caught and caught.si_signo == signal.SIGTERM:
            return
        note_ended(all_running, reap(), time.monotonic())


def hold(holder: Holder) -> None:
    """Start a holder and note where its namespace is found, seen from this process namespace."""
    process = subprocess.Popen(holder.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if not process.stdout or not process.stdout.readline():
        raise SystemExit(f"the namespace {holder.handle} could not be made")
    holder.handle.symlink_to(f"/proc/{process.pid}/ns/mnt")
    process.returncode = 0  # reaped with the rest


def start(component: Component, logs: Path) -> int:
    """Start a component, its output at the end of its log."""
    with (logs / f"{component.name}.log").open("ab") as log:
        process = subprocess.Popen(
            component.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_unblock
        )
    process.returncode = 0  # reaped below, with the orphans: Popen need not wait for it
    return process.pid


def reap() -> dict[int, int]:
    """Collect every child that has ended, orphans too: process ids and exit statuses."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def note_ended(all_running: list[Running], ended: dict[int, int], now: float) -> None:
    """Mark the components that have ended, to be started again a little later."""
    for running in all_running:
        if running.pid in ended:
            print(f"{running.component.name} ended with {ended[running.pid]}, starting it again", flush=True)
            running.pid, running.due = None, now + RESTART_AFTER


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM})


def main() -> None:
    """Run the plan in the file named on the command line."""
    run(Plan.from_json(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
