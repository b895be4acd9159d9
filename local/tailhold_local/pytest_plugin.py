"""The `cluster` fixture: a running cluster for tests, and where its logs are when one fails.

A test file of the root conftest's tree gets it by `pytest_plugins = ["tailhold_local.pytest_plugin"]` there.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tailhold_local.cluster import Cluster
from tailhold_local.layout import Layout, state_root
from tailhold_local.lifecycle import down, namesake, up
from tailhold_local.locks import locked
from tailhold_local.processes import find_supervisor

REUSED = "TAILHOLD_TEST_CLUSTER"
"""The variable that names a cluster to reuse, which then stays up."""
NAMES = ("test", "test-2", "test-3", "test-4")
"""Test runs at the same time take different ones."""
GPUS = 2

_CLUSTER = pytest.StashKey[Cluster]()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster named by $TAILHOLD_TEST_CLUSTER, else one of our own with two stand-in GPUs."""
    if os.geteuid() != 0:
        pytest.skip("the local cluster needs root")
    reused = os.environ.get(REUSED)
    with _running(reused) if reused else _own() as found:
        request.config.stash[_CLUSTER] = found
        yield found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: "pytest.CallInfo[None]"
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say where the logs are under each failure of a test that used the cluster."""
    report = yield
    found = item.config.stash.get(_CLUSTER, None)
    if report.failed and found and "cluster" in getattr(item, "fixturenames", ()):
        report.sections.append(("cluster", f"name {found.name}, logs in {found.logs}"))
    return report


@contextmanager
def _own() -> Iterator[Cluster]:
    """A fresh cluster under a name that no other test run holds now."""
    with _name() as name:
        down(name)
        yield up(name, gpus=GPUS)
        down(name)


@contextmanager
def _name() -> Iterator[str]:
    for name in NAMES:
        if namesake(Layout(state_root(), name)):
            continue
        try:
            with locked(state_root() / f".{name}.tests.lock", wait=False):
                yield name
                return
        except BlockingIOError:
            continue
    pytest.fail("too many test runs at once")


@contextmanager
def _running(name: str) -> Iterator[Cluster]:
    found = Cluster.find(name)
    if not find_supervisor(found.layout):
        pytest.fail(f"cluster {name!r} of ${REUSED} does not run; start it with `tailhold up --name {name}`")
    yield found
