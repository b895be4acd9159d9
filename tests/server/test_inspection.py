"""What an inspection finds in folders of models, and what it says of files that are not whole."""

import dataclasses
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub import REPO, REVISION, hub
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tailhold.inspection import in_job
from tailhold_api.codec import digest, dump, load
from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel
from tailhold_api.inspection import Inspection, InspectionPart
from tailhold_api.sources import ModelSource
from tailhold_server.adapters.engine_arguments import known_arguments
from tailhold_server.errors import StartError
from tailhold_server.inspection.look import inspect
from tailhold_server.inspection.model import (
    attention_layers,
    context_tokens,
    generator_facts,
    key_value_numbers,
)
from tailhold_server.inspection.weights import Weights, read_weights

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
BERT = {"architectures": ["BertModel"], "hidden_size": 48, "intermediate_size": 96, "max_position_embeddings": 512}
TOKENIZER = {"model": {"vocab": {"a": 0, "b": 298}}, "added_tokens": [{"id": 299, "content": "<end>"}]}


def model(folder: Path, config: dict[str, Any], rows: int = 10, **tensors: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    save_file({"words": np.zeros((rows, 4), dtype=np.float16), **tensors}, folder / "model.safetensors")
    return folder


def part(folder: Path, **more: Any) -> InspectionPart:
    model(folder / "generator", LLAMA)
    model(folder / "embedder", BERT)
    sources = {name: ModelSource(path=str(folder / name)) for name in ("generator", "embedder")}
    return InspectionPart(**sources, image="image:1", **more)


def test_an_inspection_reads_configs_headers_and_the_engines_arguments(tmp_path: Path) -> None:
    wanted = part(tmp_path, arguments=("frobnicate", "max_logprobs"))
    found = inspect(wanted, tmp_path)
    assert found.digest == digest(wanted)
    assert found.generator is not None
    assert found.embedder is not None
    assert (found.generator.parameters, found.generator.weight_bytes) == (40, 80)
    assert (found.generator.layers, found.generator.key_value_numbers) == (2, 2 * 2 * 16)
    assert (found.generator.highest_token, found.generator.dtype) == (299, "bfloat16")
    assert (found.embedder.dimension, found.embedder.context_tokens) == (48, 512)
    assert found.unknown_arguments == ("frobnicate",)
    assert found.cpu_build
    assert found.vllm


def test_known_arguments_are_those_that_the_engine_has() -> None:
    """Read from the source in a blink, and the same as the dataclass has when it is imported."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert known_arguments() == {field.name for field in dataclasses.fields(AsyncEngineArgs)}


@given(shapes=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=5))
def test_headers_count_what_numpy_counts(shapes: list[tuple[int, int]], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("weights")
    arrays = {f"t{at}": np.zeros(shape, dtype=np.float32) for at, shape in enumerate(shapes)}
    save_file(arrays, folder / "a.safetensors")
    count = sum(each.size for each in arrays.values())
    assert read_weights(folder) == Weights(count, 4 * count, "F32")


@pytest.mark.parametrize("kept", [0, 4, 8, 20, -1])
def test_a_file_that_is_cut_off_is_named_with_both_lengths(tmp_path: Path, kept: int) -> None:
    """A copy that broke off would end in the middle of vLLM's loading."""
    path = model(tmp_path / "m", LLAMA) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(StartError, match=r"model\.safetensors") as caught:
        read_weights(path.parent)
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    assert caught.value.final


@given(data=st.binary(max_size=300))
def test_any_bytes_are_weights_or_a_named_fault(data: bytes, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "model.safetensors").write_bytes(data)
    with suppress(StartError):
        assert read_weights(folder).size <= len(data)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", LLAMA)
    index = {"weight_map": {"words": "model.safetensors", "more": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(StartError, match=r"lacks 1 of 2 weight files .* model-00002-of-00002"):
        read_weights(folder)


def test_files_beside_the_index_are_not_counted_twice(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", LLAMA)
    save_file({"all": np.zeros(7, dtype=np.float16)}, folder / "consolidated.safetensors")
    index = {"weight_map": {"words": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_weights(folder).parameters == 40


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}, 32768),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "yarn", "factor": 4.0}}, 32768),
        ({"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "default"}}, 8192),
        ({"n_positions": 1024, "max_seq_len": 2048}, 1024),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({}, 0),
    ],
)
def test_the_context_is_what_vllm_derives(config: dict[str, Any], tokens: int) -> None:
    assert context_tokens(config) == tokens


@pytest.mark.parametrize(
    ("config", "numbers", "layers"),
    [
        (LLAMA, 64, 2),
        ({**LLAMA, "head_dim": 32}, 128, 2),
        ({"num_attention_heads": 12, "hidden_size": 768, "num_hidden_layers": 12}, 1536, 12),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61}, 576, 61),
        ({**LLAMA, "layer_types": ["full_attention", "linear_attention", "sliding_attention"]}, 64, 2),
    ],
)
def test_the_cache_of_a_layer_is_what_vllm_lays_out(config: dict[str, Any], numbers: int, layers: int) -> None:
    assert (key_value_numbers(config), attention_layers(config)) == (numbers, layers)


def test_a_model_of_more_than_text_is_read_by_its_text_part(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", {"architectures": ["SeesToo"], "text_config": LLAMA})
    facts = generator_facts(folder, read_weights(folder))
    assert (facts.architecture, facts.hidden) == ("SeesToo", 64)


@pytest.mark.parametrize("value", [None, "x", -1, 1.5, [], {}, True])
def test_odd_values_in_a_config_are_not_known_and_no_crash(tmp_path: Path, value: Any) -> None:
    folder = model(tmp_path / "m", dict.fromkeys((*LLAMA, "rope_scaling", "quantization_config"), value))
    facts = generator_facts(folder, read_weights(folder))
    assert facts.context_tokens in (0, 1)


def test_the_job_leaves_what_it_found_where_kubelet_looks(tmp_path: Path) -> None:
    wanted = part(tmp_path / "models")
    (tmp_path / "part.json").write_text(dump(wanted))
    log = tmp_path / "ending"
    env = {"TAILHOLD_TERMINATION_LOG": str(log), "TAILHOLD_CLAIMS": str(tmp_path)}
    assert in_job(tmp_path / "part.json", env) == 0
    assert load(Inspection, log.read_text()) == inspect(wanted, tmp_path)
    assert len(log.read_bytes()) < 4096

    (tmp_path / "models" / "embedder" / "config.json").unlink()
    assert in_job(tmp_path / "part.json", env) == 2
    said = json.loads(log.read_text())
    assert said["reason"] == "ModelNotFound"
    assert "embedder/config.json" in said["message"]


def test_with_the_stand_in_engine_no_model_is_read(tmp_path: Path) -> None:
    sources = ModelSource(path="/nowhere"), ModelSource(path="/nowhere-else")
    found = inspect(InspectionPart(generator=sources[0], embedder=sources[1], image="", stand_in=True), tmp_path)
    assert (found.generator, found.embedder, found.vllm) == (None, None, "stand-in")


def test_a_model_on_the_hub_is_read_where_it_is(tmp_path: Path) -> None:
    """Configs are fetched and the first bytes of the weights; the weights themselves stay there."""
    folder = model(tmp_path / "there", LLAMA, more=np.zeros(1_000_000, dtype=np.float32))
    source = ModelSource(hugging_face=HuggingFaceModel(repo=REPO, revision=REVISION))
    embedder = ModelSource(path=str(model(tmp_path / "here", BERT)))
    (tmp_path / "part.json").write_text(dump(InspectionPart(generator=source, embedder=embedder, image="")))
    log = tmp_path / "ending"
    with hub(folder) as (url, asked, sent):
        found = in_process(tmp_path, log, url)
        assert found.returncode == 0, found.stderr
        away = in_process(tmp_path, log, url.replace("127.0.0.1", "127.0.0.2"), HF_HOME=str(tmp_path / "empty"))
    facts = load(Inspection, json.dumps(json.loads(found.stdout.splitlines()[-1]))).generator
    assert facts is not None
    assert (facts.parameters, facts.weight_bytes) == (1_000_040, 4_000_080)
    assert any(path.endswith("/config.json") for path in asked)
    assert sum(sent) < 500_000, "four megabytes of weights were not fetched"
    assert away.returncode == 1, "a hub that does not answer is tried again"
    assert json.loads(log.read_text())["reason"] == "SourceUnreachable"
    assert "mirror" in log.read_text()


def in_process(folder: Path, log: Path, url: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The Job's own command; the hub's address is read when its client is imported."""
    env = {"HF_ENDPOINT": url, "HF_HOME": str(folder / "cache"), "TAILHOLD_TERMINATION_LOG": str(log), **more}
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "tailhold.main", "inspect", "--part", str(folder / "part.json")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
