"""The reason of a child that could not start."""

import os
import subprocess
import sys

import pytest

from tailhold_server.adapters.stderr import Overheard, last_error


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(["Traceback:", '  File "x"', "ValueError: no room"], "ValueError: no room", id="plain"),
        pytest.param(["torch.OutOfMemoryError: 3 GiB"], "torch.OutOfMemoryError: 3 GiB", id="dotted"),
        pytest.param(["KeyError: 'a'", "During handling", "RuntimeError: b"], "RuntimeError: b", id="last-wins"),
        pytest.param(["    raise ValueError: not at the margin", "all is well"], None, id="none"),
    ],
)
def test_the_last_traceback_gives_the_reason(lines: list[str], error: str | None) -> None:
    assert last_error(lines) == error


def test_a_childs_words_are_kept_and_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(2)
    with Overheard() as overheard:
        subprocess.run([sys.executable, "-c", "raise ValueError('no common block size')"], check=False)
        while overheard.last_error() is None:  # the reader is a thread
            pass
    assert overheard.last_error() == "ValueError: no common block size"
    assert "ValueError: no common block size" in capfd.readouterr().err
    assert (os.fstat(2).st_dev, os.fstat(2).st_ino) == (before.st_dev, before.st_ino)
