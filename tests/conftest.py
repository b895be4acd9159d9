"""Fixtures of the tests that need the real thing."""

import pytest
from hypothesis import settings
from rich.console import Console

from tailhold.provision import equip, target_of
from tailhold.steps import Steps
from tailhold.target import Target
from tailhold_local import Cluster

pytest_plugins = ["tailhold_local.pytest_plugin"]
# A law is no timed assertion: on a busy machine an example may take as long as it likes.
settings.register_profile("tailhold", deadline=None)
settings.load_profile("tailhold")


@pytest.fixture(scope="session")
def cluster_target(cluster: Cluster) -> Target:
    """The tests' cluster as kubectl and helm see it."""
    return target_of(cluster)


@pytest.fixture(scope="session")
def equipped(cluster: Cluster) -> Target:
    """The tests' cluster with Tailhold installed by helm, and the claims of the example."""
    return equip(Steps(Console()), cluster)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The cluster's own tests first: a pod that owns every core that can be owned needs a node without our operator."""
    items.sort(key=lambda item: "local" not in item.path.parts)
