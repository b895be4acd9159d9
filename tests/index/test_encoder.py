import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import BertModel

from tailhold_api.conditions import Reason
from tailhold_api.serving import Embedder
from tailhold_server.adapters.encoder import batches, load_encoder
from tailhold_server.errors import StartError
from tailhold_server.ports import Encoder
from tailhold_server.vectors import NotFiniteError


def settings(dimension: int = 32, **more: object) -> Embedder:
    return Embedder.model_validate({"model": {"path": "/models/x"}, "dimension": dimension, **more})


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    shutil.copytree(small, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def encoder(small: Path) -> Encoder:
    return load_encoder(small, settings())


def test_vectors_are_finite_and_of_length_one(encoder: Encoder) -> None:
    vectors = encoder.encode(["one", "two words", "", "three " * 400])
    assert vectors.shape == (4, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)


def test_a_text_has_the_same_vector_in_any_company(encoder: Encoder) -> None:
    texts = [f"text {n} " * (n + 1) for n in range(100)]
    together = encoder.encode(texts)
    for row in (0, 50, 99):
        np.testing.assert_allclose(encoder.encode([texts[row]])[0], together[row], atol=1e-5)


@given(st.lists(st.integers(0, 9000), max_size=300))
def test_c91_batches_hold_each_text_once_within_their_limits(lengths: list[int]) -> None:
    found = list(batches(lengths))
    assert sorted(row for batch in found for row in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) <= 64
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 8192


def test_c91_a_text_beyond_the_models_limit_is_cut_not_an_error(small: Path) -> None:
    short = load_encoder(small, settings(max_tokens=16))
    np.testing.assert_allclose(short.encode(["alpha " * 14]), short.encode(["alpha " * 2000]), atol=1e-5)


def test_c79_a_text_whose_vector_is_not_finite_is_named(copy: Path) -> None:
    from tokenizers import Tokenizer

    token = Tokenizer.from_file(str(copy / "tokenizer.json")).token_to_id("poison")
    weights = load_file(copy / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][token] = float("nan")
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    encoder = load_encoder(copy, settings())
    with pytest.raises(NotFiniteError) as failed:
        encoder.encode(["fine", "a poison word", "fine too"])
    assert failed.value.rows == (1,)


def test_the_fingerprint_changes_with_weights_and_pooling_alone(copy: Path, encoder: Encoder) -> None:
    assert load_encoder(copy, settings(max_tokens=64)).fingerprint == encoder.fingerprint
    (copy / "README.md").write_text("words")
    assert load_encoder(copy, settings()).fingerprint == encoder.fingerprint
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    pooled = load_encoder(copy, settings())
    assert pooled.fingerprint != encoder.fingerprint
    weights = load_file(copy / "model.safetensors")
    save_file({name: each + 1 for name, each in weights.items()}, copy / "model.safetensors", {"format": "pt"})
    assert load_encoder(copy, settings()).fingerprint != pooled.fingerprint


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "last"),
    ],
)
def test_pooling_is_what_the_model_was_trained_with(copy: Path, pooling: dict[str, object], expected: str) -> None:
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (copy / "modules.json").write_text(
        json.dumps([{"type": "x.Transformer", "path": ""}, {"type": "x.Pooling", "path": "1_Pooling"}])
    )
    vectors = load_encoder(copy, settings()).encode(["some words here", "more"])
    model = BertModel.from_pretrained(copy)
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(copy / "tokenizer.json"))
    ids.no_padding()
    with torch.inference_mode():
        states = model(torch.tensor([ids.encode("some words here").ids])).last_hidden_state[0]
    wanted = {"cls": states[0], "mean": states.mean(dim=0), "last": states[-1]}[expected]
    np.testing.assert_allclose(vectors[0], wanted.numpy(), atol=1e-4)


def test_a_wrong_dimension_names_both(small: Path) -> None:
    with pytest.raises(StartError, match=r"`embedder.dimension` is 384, the model in .* gives 32") as failed:
        load_encoder(small, settings(384))
    assert failed.value.reason is Reason.START_FAILED


@pytest.mark.parametrize("gone", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_not_there_is_named(copy: Path, gone: str) -> None:
    (copy / gone).rename(copy / "pytorch_model.bin")
    with pytest.raises(
        StartError, match=gone.replace("model", r"\*").split(".")[0] if "safe" in gone else gone
    ) as failed:
        load_encoder(copy, settings())
    assert failed.value.reason is Reason.MODEL_NOT_FOUND


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="nowhere"):
        load_encoder(tmp_path / "nowhere", settings())


def test_modules_that_are_not_supported_are_named(copy: Path) -> None:
    (copy / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]))
    with pytest.raises(StartError, match="Dense"):
        load_encoder(copy, settings())


@pytest.mark.parametrize("text", ["", "[1]", '[{"type": 1}]', '[{"type": "x.Pooling", "path": "gone"}]'])
def test_a_layout_that_cannot_be_read_is_named(copy: Path, text: str) -> None:
    (copy / "modules.json").write_text(text)
    with pytest.raises(StartError, match=r"modules\.json"):
        load_encoder(copy, settings())


def test_minilm_puts_like_meanings_together(minilm: Path) -> None:
    encoder = load_encoder(minilm, settings(384))
    a, b, c = encoder.encode(["The cat sits on the mat.", "A kitten is resting on a rug.", "Stocks fell on Monday."])
    assert a @ b > 0.4 > a @ c
