"""Turns the demo's GGUF model into a folder that an engine loads. A child process: its memory goes back."""

import sys
from pathlib import Path

SAMPLE = "Debian 12, *bookworm*:\n\n\tapt install  café — 日本"
"""A tokenizer has to give it back unchanged: digits, runs of spaces, accents, letters of several bytes."""


def convert(gguf: Path, target: Path) -> None:
    """Write config, tokenizer, chat template and bfloat16 safetensors weights into the folder `target`."""
    _save_tokenizer(gguf, target)
    _save_weights(gguf, target)


def _save_tokenizer(gguf: Path, target: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # GGUF names its pre-tokenizer ("smollm") and does not spell it: digits stand alone, then GPT-2's pattern.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    if not tokenizer.chat_template:
        raise ValueError(f"{gguf}: no chat template in the file")
    if (back := tokenizer.decode(tokenizer.encode(SAMPLE))) != SAMPLE:
        raise ValueError(f"{gguf}: the tokenizer gives back {back!r} for {SAMPLE!r}")
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(target)


def _save_weights(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=unpacked
    )
    model.save_pretrained(target)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
