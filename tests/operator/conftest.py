"""Fixtures of the operator's tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no test folder on the path

import api_server
from api_server import ApiServer
from places import place

__all__ = ["place"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden", default=False))


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    if api_server.binaries() is None:
        pytest.skip("etcd and kube-apiserver are not built: run scripts/setup")
    with api_server.started() as server:
        yield server


@pytest.fixture
def golden() -> Path:
    return Path(__file__).parents[1] / "golden"
