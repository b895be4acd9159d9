"""Facts of models from their folders."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts
from tailhold_server.errors import StartError
from tailhold_server.inspection.weights import Weights

Config = Mapping[str, Any]
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}
_CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Keys by which configs name their context, as vLLM reads them; `model_max_length` holds over all."""
_SCALED_ALREADY = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "default")
"""Kinds of RoPE scaling by which vLLM makes the context no longer."""


def generator_facts(folder: Path, weights: Weights) -> GeneratorFacts:
    """Of a language model by the configs in its folder. Raises StartError."""
    whole = read_json(folder / "config.json")
    config = text_config(whole)
    return GeneratorFacts(
        architecture=_architecture(whole),
        layers=attention_layers(config),
        hidden=_int(config, "hidden_size"),
        intermediate=_int(config, "intermediate_size"),
        heads=_int(config, "num_attention_heads"),
        key_value_numbers=key_value_numbers(config),
        key_value_heads=_key_value_heads(config),
        vocabulary=_int(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", whole.get("tie_word_embeddings", False))),
        context_tokens=context_tokens(config),
        dtype=_dtype(config, whole, weights),
        quantization=_quantization(whole, config),
        parameters=weights.parameters,
        weight_bytes=weights.size,
        highest_token=highest_token(folder),
        has_chat_template=has_chat_template(folder),
    )


def embedder_facts(folder: Path, weights: Weights) -> EmbedderFacts:
    """Of an encoder by the configs in its folder. Raises StartError."""
    config = read_json(folder / "config.json")
    read_json(folder / "tokenizer.json")
    return EmbedderFacts(
        architecture=_architecture(config),
        dimension=_int(config, "hidden_size"),
        intermediate=_int(config, "intermediate_size"),
        context_tokens=_positions(config),
        parameters=weights.parameters,
        weight_bytes=weights.size,
    )


def text_config(config: Config) -> Config:
    """The part that speaks of text, in models that know more than text."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def attention_layers(config: Config) -> int:
    """Layers with keys and values: of a model that mixes kinds, those that are some kind of attention."""
    kinds = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(kinds, list):
        return sum(1 for kind in kinds if "attention" in str(kind) and "linear" not in str(kind))
    return _int(config, "num_hidden_layers")


def key_value_numbers(config: Config) -> int:
    """Numbers that a token leaves in one layer: keys and values of all heads, or with MLA one latent and its position.

    As vLLM lays out its cache (FullAttentionSpec and MLAAttentionSpec).
    """
    if _int(config, "kv_lora_rank"):
        return _int(config, "kv_lora_rank") + _int(config, "qk_rope_head_dim")
    heads = _int(config, "num_attention_heads")
    width = _int(config, "head_dim") or (_int(config, "hidden_size") // heads if heads else 0)
    return 2 * _key_value_heads(config) * width


def context_tokens(config: Config) -> int:
    """Longest sequence, by the rules of vLLM's `_get_and_verify_max_len`; 0 where no key tells."""
    told = [_int(config, key) for key in _CONTEXT if _int(config, key)]
    longest = _int(config, "model_max_length") or min(told, default=0)
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    rope = rope if isinstance(rope, dict) else {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor = rope.get("factor")
    if kind in _SCALED_ALREADY or not isinstance(factor, int | float) or "gemma3" in str(config.get("model_type")):
        return longest
    return int(longest * factor)


def highest_token(folder: Path) -> int:
    """Largest id of the tokenizer's vocabulary and added tokens. Raises StartError where there is no tokenizer.json."""
    found = read_json(folder / "tokenizer.json")
    model, added = found.get("model"), found.get("added_tokens")
    words = model.get("vocab") if isinstance(model, dict) else None
    ids = [each.get("id", 0) for each in added or () if isinstance(each, dict)]
    if isinstance(words, dict):
        ids += words.values()
    elif isinstance(words, list):
        ids.append(len(words) - 1)
    return max((each for each in ids if isinstance(each, int)), default=0)


def has_chat_template(folder: Path) -> bool:
    """In a file of its own, or in the tokenizer's config."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(read_json(path).get("chat_template"))


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file. Raises StartError that names the file."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise StartError(Reason.MODEL_NOT_FOUND, f"{path} is not an object of JSON")
    return found


def _positions(config: Config) -> int:
    """An encoder's longest input. RoBERTa's kin begin to count behind the padding token."""
    positions = _int(config, "max_position_embeddings")
    if "roberta" in str(config.get("model_type")):
        return max(0, positions - _int(config, "pad_token_id") - 1)
    return positions


def _key_value_heads(config: Config) -> int:
    if _int(config, "kv_lora_rank"):
        return 1
    return _int(config, "num_key_value_heads") or _int(config, "num_attention_heads")


def _architecture(config: Config) -> str:
    named = config.get("architectures")
    return str(named[0])[:200] if isinstance(named, list) and named else ""


def _dtype(config: Config, whole: Config, weights: Weights) -> str:
    """What the config names; vLLM takes float32 weights as float16 or bfloat16 where nothing is named."""
    for said in (config, whole):
        named = said.get("dtype") or said.get("torch_dtype")
        if isinstance(named, str):
            return named.removeprefix("torch.")
    return _DTYPES.get(weights.dtype, "")


def _quantization(whole: Config, config: Config) -> str:
    said = whole.get("quantization_config") or config.get("quantization_config")
    return str(said.get("quant_method", ""))[:64] if isinstance(said, dict) else ""


def _int(config: Config, key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and value > 0 else 0
