"""The folder `operator/` must never become a package: it would hide the standard library's module."""

import subprocess
import sys

from tailhold_api.generate import ROOT


def test_operator_folder_is_not_a_package() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    probe = "import collections, operator; print(operator.add(1, 2))"
    done = subprocess.run([sys.executable, "-S", "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("3", "")
