"""`tailhold up`, beside another one and stopped half-way."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from rich.console import Console

from tailhold import provision
from tailhold.steps import Steps
from tailhold_local import LocalError, machine
from tailhold_local.layout import Layout, state_root
from tailhold_local.locks import locked


class StartedError(Exception):
    """The cluster would be started now."""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of the machine, a state folder alone; a start ends where it would begin."""

    def start(*_: object, **__: object) -> None:
        raise StartedError

    monkeypatch.setattr(machine, "require_root", lambda: None)
    monkeypatch.setattr(provision.tailhold_local, "up", start)
    with tempfile.TemporaryDirectory() as folder:  # a short one: sockets lie in it
        monkeypatch.setenv("TAILHOLD_STATE", folder)
        yield


def up(name: str) -> None:
    provision.local_cluster(Steps(Console(quiet=True)), name)


@pytest.mark.usefixtures("alone")
def test_a_second_one_of_the_same_name_is_refused_at_once() -> None:
    with locked(Layout(state_root(), "one").setup_lock):
        with pytest.raises(LocalError, match="'one' is being set up by another command: wait until it has ended"):
            up("one")
        with pytest.raises(StartedError):
            up("two")
    with pytest.raises(StartedError):
        up("one")
    assert list(state_root().iterdir()) == [], "no lock stays"


@pytest.mark.usefixtures("alone")
def test_the_lock_is_held_to_the_end_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def equip(*_: object, **__: object) -> None:
        with pytest.raises(LocalError, match="is being set up"):
            up("one")
        raise StartedError

    monkeypatch.setattr(provision.tailhold_local, "up", lambda *_, **__: None)
    monkeypatch.setattr(provision, "equip", equip)
    with pytest.raises(StartedError):
        up("one")


def test_ctrl_c_says_how_to_go_on() -> None:
    """With the real program: typer makes an exit of it before our own code sees it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        # As in a terminal: a shell has what it runs in the background ignore Ctrl-C.
        words = ["env", "--default-signal=INT", sys.executable, "-m", "tailhold.main", "ask", "--url", url, "Why?"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
            connection, _ = silent.accept()  # and no answer
            with connection:
                process.send_signal(signal.SIGINT)
                _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (130, "stopped; run the same command again to go on\n")
