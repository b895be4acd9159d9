"""Holds the sums of `tailhold_api.memory` against a real engine: `python -m tailhold_bench.engine_memory --help`.

Models have the shape of real ones and made-up weights; each case is an engine of its own that prefills and decodes as
many requests as it may run at once. The card's memory is what `nvidia-smi` counts, the host's what the kernel counts
for the engine's processes (proportional set size), the largest of samples a fifth of a second apart.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tailhold_api.inspection import GeneratorFacts
from tailhold_api.memory import engine_lines
from tailhold_api.spec import Spec

_MEBIBYTE = 1 << 20
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHAPES: dict[str, dict[str, Any]] = {
    "8B": _LLAMA | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128},
    "1B": _LLAMA
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
}
"""Of Llama 3.1 8B and Llama 3.2 1B, by their config.json."""
_PARAMETERS = {"8B": 8_030_261_248, "1B": 1_235_814_400}
_PROMPT_TOKENS, _ANSWER_TOKENS = 2000, 64


class Case(NamedTuple):
    """An engine."""

    shape: str
    cache: int
    """MiB."""
    tokens: int
    """In a step."""
    requests: int
    eager: bool = True
    fp8: bool = False
    offload: int = 0
    """MiB."""


CASES = (
    Case("8B", 8192, 2048, 16),
    Case("8B", 8192, 2048, 64, eager=False),
    Case("8B", 8192, 2048, 16, fp8=True),
    Case("8B", 8192, 16384, 256),
    Case("1B", 4096, 8192, 256, eager=False),
    Case("1B", 2048, 2048, 16, offload=4096),
)


def added_up(case: Case) -> int:
    """What the product says of the engine's part of the card, in MiB."""
    shape = SHAPES[case.shape]
    facts = GeneratorFacts(
        layers=shape["num_hidden_layers"],
        hidden=shape["hidden_size"],
        intermediate=shape["intermediate_size"],
        heads=shape["num_attention_heads"],
        key_value_numbers=2 * shape["num_key_value_heads"] * shape["head_dim"],
        key_value_heads=shape["num_key_value_heads"],
        vocabulary=shape["vocab_size"],
        tied=shape.get("tie_word_embeddings", False),
        dtype="bfloat16",
        parameters=_PARAMETERS[case.shape],
    )
    return sum(line.mebibytes for line in engine_lines(_spec(case), facts))


def _spec(case: Case) -> Spec:
    model = {"path": "/model"}
    engine = {
        "kv_cache_mebibytes": case.cache,
        "max_batched_tokens": case.tokens,
        "max_running_requests": case.requests,
        "enforce_eager": case.eager,
    }
    return Spec.model_validate(
        {
            "generator": {"model": model, "quantization": "FP8" if case.fp8 else "None"},
            "embedder": {"model": model, "dimension": 384},
            "index": {"store": {"claim_name": "snapshots"}},
            "corpus": {"sources": [{"name": "none", "config_map": {"name": "none"}}]},
            "engine": engine,
        }
    )


def measure(case: Case) -> dict[str, Any]:
    """In this process: start the engine, load it, and say what was counted."""
    import vllm

    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(SHAPES[case.shape]))
    with _largest(_card) as card, _largest(_host) as host:
        engine: Any = vllm.LLM(model=str(folder), **_arguments(case))
        prompts = [_prompt() for _ in range(case.requests)]
        sampling = vllm.SamplingParams(max_tokens=_ANSWER_TOKENS, ignore_eos=True, detokenize=False, top_p=0.9)
        engine.generate(prompts, sampling, use_tqdm=False)
        time.sleep(1)
    return {"vllm": vllm.__version__, "card": card(), "host": host()}


def _arguments(case: Case) -> dict[str, Any]:
    return {
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "max_model_len": 4096,
        "block_size": 32,
        "kv_cache_memory_bytes": case.cache * _MEBIBYTE,
        "max_num_batched_tokens": case.tokens,
        "max_num_seqs": case.requests,
        "enforce_eager": case.eager,
        "quantization": "fp8" if case.fp8 else None,
        **({"kv_offloading_size": case.offload / 1024} if case.offload else {}),
    }


def _prompt() -> dict[str, Any]:
    return {"prompt_token_ids": [random.randrange(5, 120_000) for _ in range(_PROMPT_TOKENS)]}  # noqa: S311


@contextmanager
def _largest(look: Callable[[], int]) -> Iterator[Callable[[], int]]:
    most, stopped = [0], threading.Event()

    def watch() -> None:
        while not stopped.wait(0.2):
            most[0] = max(most[0], look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield lambda: most[0]
    stopped.set()
    thread.join()


def _card() -> int:
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])


def _host() -> int:
    kilobytes = 0
    for pid in _family(os.getpid()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes // 1024


def _family(pid: int) -> list[int]:
    children: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += map(int, listed.read_text().split())
        except OSError:
            continue
    return [pid, *(each for child in children for each in _family(child))]


def main() -> int:
    """Each case in a process of its own, then a line for it. 1 where a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=180, help="longest time of a case")
    parser.add_argument("--case", type=int, help="measure this one here and print it as JSON")
    given = parser.parse_args()
    if given.case is not None:
        print("MEASURED", json.dumps(measure(CASES[given.case])), flush=True)
        os._exit(0)  # the engine's own end takes longer than all the rest
    print("model  cache  tokens  requests  eager  fp8  offload | added up  counted   more | host")
    return max(_row(at, case, given.seconds) for at, case in enumerate(CASES))


def _row(at: int, case: Case, seconds: int) -> int:
    command = [sys.executable, "-m", "tailhold_bench.engine_memory", "--case", str(at)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False).stdout
    except subprocess.TimeoutExpired:
        done = ""
    found = next((line for line in done.splitlines() if line.startswith("MEASURED")), None)
    if found is None:
        print(f"{case}: failed: {done[-500:]}", flush=True)
        return 1
    counted, sum_ = json.loads(found.removeprefix("MEASURED")), added_up(case)
    asked = f"{case.shape:5}  {case.cache:5}  {case.tokens:6}  {case.requests:8}  {case.eager!s:5}  {case.fp8!s:5}"
    more = sum_ / counted["card"] - 1
    print(f"{asked} {case.offload:5} | {sum_:8,} {counted['card']:8,} {more:+6.1%} | {counted['host']:,}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
