"""The real helm, for tests of what the chart renders and refuses."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from helm_chart import Helm

from tailhold_local import binaries
from tailhold_local.progress import Progress


def _candidates() -> Iterable[str | None]:
    yield os.environ.get("TAILHOLD_HELM")
    yield binaries.located()["helm"]
    yield shutil.which("helm")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    found = next((path for path in _candidates() if path and Path(path).is_file()), None)
    if found is None and not os.environ.get("CI"):
        pytest.skip("no helm: set TAILHOLD_HELM, or let `tailhold up` build it once")
    program = found or binaries.ensure(Progress())["helm"]
    return Helm(program, tmp_path_factory.mktemp("helm"))
