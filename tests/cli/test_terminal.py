"""Ctrl-C on a real terminal."""

import os
import pty
import sys
import time
from pathlib import Path

_PROGRAM = """
import pathlib, signal, subprocess, sys, time
from tailhold.terminal import run_apart

folder = pathlib.Path(sys.argv[1])

def program():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    engine = "import signal, time, pathlib; signal.signal(signal.SIGINT, lambda *_: pathlib.Path(%r).touch());"
    engine %= str(folder / "interrupted")
    subprocess.Popen([sys.executable, "-c", engine + f"open({str(folder / 'started')!r}, 'w'); time.sleep(3)"])
    time.sleep(30)
    return 0

sys.exit(run_apart(program))
"""


def test_ctrl_c_reaches_the_program_as_sigterm_and_its_children_not_at_all(tmp_path: Path) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
        os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, str(tmp_path)])  # noqa: S606
    deadline = time.monotonic() + 20
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert not (tmp_path / "interrupted").exists()
    os.close(terminal)
