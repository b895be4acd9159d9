"""Running a program apart from the terminal it was started on."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def run_apart(program: Callable[[], int]) -> int:
    """Run in a process and a session of its own, which is told to end by SIGTERM alone. Returns its exit code.

    A terminal sends Ctrl-C to every process of its session: the engine's too, which would cut off what it answers.
    """
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _leave_session(parent)
        return program()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _leave_session(parent: int) -> None:
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # nobody is left to pass a signal on
        if os.getppid() != parent:
            sys.exit(0)
