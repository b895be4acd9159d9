"""What builds leave in buildah's store: real builds of the smallest images, in a store of their own."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailhold_local import build_images, caches, images
from tailhold_local.build_images import build_on, copied_stages
from tailhold_local.images import BUSYBOX
from tailhold_local.layout import cache_root
from tailhold_local.progress import Silent

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("buildah") or not BUSYBOX.exists(),
    reason="needs root, buildah and busybox",
)

BASE = "localhost/tailhold/base:test-1"
DOCKERFILE = """ARG BASE
FROM ${BASE} AS python
RUN ["/busybox", "touch", "/python"]
FROM python AS dependencies
COPY requirements /requirements
RUN ["/busybox", "cp", "/requirements", "/site"]
FROM python
COPY --from=dependencies /site /site
COPY code /code
"""
SLOW = 'ARG BASE\nFROM ${BASE}\nRUN ["/busybox", "sleep", "300"]\nCOPY code /code\n'


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a Dockerfile of three stages, and a store with their base."""
    monkeypatch.setenv("TAILHOLD_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(BUSYBOX, root / "busybox")
    (root / "Dockerfile.operator").write_text(DOCKERFILE)
    (root / "requirements").write_text("1")
    (root / "Dockerfile").write_text("FROM scratch\nCOPY busybox /busybox\n")
    images.build(root, root / "Dockerfile", BASE, tmp_path / "base.tar")
    yield root
    images.end_builds()


def build(root: Path, code: int) -> str:
    (root / "code").write_text(str(code))
    return build_on(BASE, "operator", Silent(), root).reference


def layers() -> set[str]:
    return set(images.buildah("images", "--all", "--quiet", "--no-trunc").split())


def identity(tag: str) -> str:
    return images.buildah("images", "--quiet", "--no-trunc", tag).strip()


def mounts() -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(str(cache_root()))]


def test_many_builds_leave_as_many_layers_as_one_and_no_mount(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_images, "KEPT", 2)
    first = build(checkout, 0)
    (dependencies,) = (tag for tag in images.tags() if "/stage:" in tag)
    count, kept = len(layers()), identity(dependencies)
    newest = [build(checkout, code) for code in (1, 2)][-1]
    assert newest != first
    assert len(layers()) == count
    assert set(images.tags()) == {BASE, dependencies, newest}
    assert identity(dependencies) == kept, "the dependencies were not made again"
    assert len(list((cache_root() / "images").glob("operator-*.tar"))) == 2
    assert mounts() == []


def cut_a_build_off(checkout: Path) -> None:
    """Kill a build in the midst of a step, as a crash does."""
    (checkout / "Dockerfile.operator").write_text(SLOW)
    (checkout / "code").write_text("0")
    code = (
        "import sys, pathlib; from tailhold_local import build_images, progress;"
        "build_images.build_on(sys.argv[1], 'operator', progress.Silent(), pathlib.Path(sys.argv[2]))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(build_images.__file__).parents[1])}
    builder = subprocess.Popen([sys.executable, "-c", code, BASE, str(checkout)], env=env, start_new_session=True)
    deadline = time.monotonic() + 20
    while not images.buildah("containers", "--quiet").strip() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()


def test_a_build_that_was_cut_off_is_cleaned_up_by_the_next(checkout: Path) -> None:
    cut_a_build_off(checkout)
    (checkout / "Dockerfile.operator").write_text(DOCKERFILE)
    build(checkout, 1)
    assert mounts() == []
    assert images.buildah("containers", "--quiet").strip() == ""


def test_a_store_with_a_layer_still_mounted_can_be_removed(checkout: Path) -> None:
    cut_a_build_off(checkout)
    caches.remove(caches.kept())
    assert mounts() == []
    assert not cache_root().exists()


def test_stages_that_are_copied_from_are_named_and_ancestors_are_not() -> None:
    assert copied_stages(DOCKERFILE, "") == ("dependencies",)
    assert copied_stages(DOCKERFILE, "dependencies") == ()
