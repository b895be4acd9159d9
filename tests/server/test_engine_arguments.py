"""What vLLM is started with."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rag_server import pod_part

from tailhold_api.engine import (
    OWN_ARGUMENTS,
    AttentionBackend,
    Compile,
    CompileBackend,
    CompileMode,
    CudaGraphMode,
    CudaGraphs,
    DynamicShapes,
    Engine,
    Speculative,
    SpeculativeMethod,
)
from tailhold_api.parts import PodPart
from tailhold_api.placement import Cpu, Gpu, Placement
from tailhold_server.adapters.engine import engine_environment, prepare
from tailhold_server.adapters.engine_arguments import (
    _ATTENTION,
    _GRAPHS,
    _SHAPES,
    doubt_about,
    engine_arguments,
    installed_version,
    is_cpu_build,
    unknown_arguments,
    value_of,
)


def placed(gpus: int, cores: int = 4, *, tensor_parallel: int = 1) -> PodPart:
    placement = Placement(gpu=Gpu(count=gpus), cpu=Cpu(cores=cores))
    return pod_part(tensor_parallel=tensor_parallel).model_copy(update={"placement": placement})


def arguments(on_cpu: bool = False, **engine: Any) -> dict[str, Any]:
    return engine_arguments(pod_part(**engine), model_folder=Path("/models/m"), on_cpu=on_cpu)


FIELDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "max_model_tokens": (4096, {"max_model_len": 4096}),
    "block_size_tokens": (64, {"block_size": 64}),
    "kv_cache_mebibytes": (100, {"kv_cache_memory_bytes": 100 * 1024 * 1024}),
    "kv_blocks": (500, {"num_gpu_blocks_override": 500}),
    "gpu_memory_fraction": (0.5, {"gpu_memory_utilization": 0.5}),
    "max_blocks_per_sequence": (512, {}),
    "max_running_requests": (7, {"max_num_seqs": 7}),
    "max_batched_tokens": (512, {"max_num_batched_tokens": 512}),
    "prefix_caching": (False, {"enable_prefix_caching": False}),
    "kv_offload_mebibytes": (512, {"kv_offloading_size": 0.5}),
    "attention_backend": (AttentionBackend.TRITON, {"attention_backend": "TRITON_ATTN"}),
    "tensor_parallel": (2, {"tensor_parallel_size": 2}),
    "enforce_eager": (True, {"enforce_eager": True}),
    "compile": (Compile(mode=CompileMode.NONE), {"compilation_config": {"mode": 0}}),
    "speculative": (
        Speculative(method=SpeculativeMethod.NGRAM),
        {
            "speculative_config": {
                "method": "ngram",
                "num_speculative_tokens": 3,
                "prompt_lookup_min": 2,
                "prompt_lookup_max": 4,
            }
        },
    ),
    "extra_args": ({"max_logprobs": "5"}, {"max_logprobs": 5}),
}


def test_every_field_of_the_engine_has_a_row() -> None:
    assert set(FIELDS) == set(Engine.model_fields)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_changes_its_argument_and_no_other(field: str) -> None:
    value, expected = FIELDS[field]
    before, after = arguments(), arguments(**{field: value})
    changed = {name: each for name, each in after.items() if before.get(name, ...) != each}
    assert changed == expected
    assert before.keys() - after.keys() == ({"kv_cache_memory_bytes"} if field == "gpu_memory_fraction" else set())


COMPILED: dict[str, tuple[Compile, dict[str, Any]]] = {
    "nothing is said": (Compile(), {}),
    "compiled, no graphs": (Compile(mode=CompileMode.DEFAULT), {"mode": 3, "cudagraph_mode": "NONE"}),
    "graphs": (Compile(mode=CompileMode.REDUCE_OVERHEAD), {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE"}),
    "tuned": (
        Compile(mode=CompileMode.MAX_AUTOTUNE),
        {"mode": 3, "cudagraph_mode": "FULL_AND_PIECEWISE", "inductor_compile_config": {"max_autotune": True}},
    ),
    "graphs as said": (
        Compile(mode=CompileMode.DEFAULT, cuda_graphs=CudaGraphs(mode=CudaGraphMode.PIECEWISE)),
        {"mode": 3, "cudagraph_mode": "PIECEWISE"},
    ),
    "as traced": (Compile(backend=CompileBackend.EAGER), {"backend": "eager"}),
    "shapes": (
        Compile(dynamic_shapes=DynamicShapes.UNBACKED),
        {"dynamic_shapes_config": {"type": "unbacked"}},
    ),
}


@pytest.mark.parametrize(("settings", "expected"), COMPILED.values(), ids=COMPILED)
def test_compilation(settings: Compile, expected: dict[str, Any]) -> None:
    assert arguments(compile=settings).get("compilation_config", {}) == expected


def test_sizes_of_graphs_are_given_in_order_and_once() -> None:
    graphs = Compile(cuda_graphs=CudaGraphs(sizes=(8, 1, 8, 2)))
    assert arguments(compile=graphs)["cudagraph_capture_sizes"] == [1, 2, 8]


def test_what_is_for_a_card_is_not_said_to_the_cpu_build() -> None:
    asked = {
        "attention_backend": AttentionBackend.TRITON,
        "kv_offload_mebibytes": 512,
        "compile": Compile(mode=CompileMode.REDUCE_OVERHEAD, cuda_graphs=CudaGraphs(sizes=(1, 2))),
    }
    found = arguments(on_cpu=True, **asked)
    assert not {"attention_backend", "kv_offloading_size", "cudagraph_capture_sizes"} & found.keys()
    assert found["compilation_config"] == {"mode": 3}


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("0.5", 0.5), ("true", True), ("fp8", "fp8"), ('{"a": 1}', {"a": 1}), ("", "")]
)
def test_extra_arguments_are_read_as_json_or_words(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_no_extra_argument_takes_the_place_of_a_field() -> None:
    everything: set[str] = set()
    for field, (value, _) in FIELDS.items():
        everything |= arguments(**{field: value}).keys() | arguments(on_cpu=True, **{field: value}).keys()
    everything |= arguments(compile=Compile(cuda_graphs=CudaGraphs(sizes=(1,)))).keys()
    assert everything - {"max_logprobs"} == set(OWN_ARGUMENTS)


def test_a_version_that_was_not_checked_says_so() -> None:
    assert doubt_about("0.32.0") == doubt_about("0.32.7+cpu") == ""
    assert "0.99.0 was not checked" in doubt_about("0.99.0")
    assert not doubt_about(installed_version())


def test_an_argument_that_is_not_there_is_named() -> None:
    assert unknown_arguments({"model": "m", "swap_space": 4}, {"model"}) == ("swap_space",)


@pytest.mark.engine
def test_every_argument_is_one_of_the_installed_vllm() -> None:
    arg_utils = pytest.importorskip("vllm.engine.arg_utils")
    known = {field.name for field in dataclasses.fields(arg_utils.AsyncEngineArgs)}
    assert set(OWN_ARGUMENTS) | {"max_logprobs"} <= known


@pytest.mark.engine
def test_vllm_itself_understands_every_compilation() -> None:
    """Its own classes read what they are given; whether a card can do it is found at the start."""
    compilation = pytest.importorskip("vllm.config.compilation")
    modes = {mode: compilation.CUDAGraphMode[name] for mode, name in _GRAPHS.items()}
    assert set(modes) == set(CudaGraphMode) - {CudaGraphMode.AUTO}
    assert {compilation.DynamicShapesType(name) for name in _SHAPES.values()} == set(compilation.DynamicShapesType)
    assert (compilation.CompilationMode(0).name, compilation.CompilationMode(3).name) == ("NONE", "VLLM_COMPILE")
    for settings, expected in COMPILED.values():
        read = compilation.CompilationConfig(**arguments(compile=settings).get("compilation_config", {}))
        assert "mode" not in expected or read.mode == expected["mode"]
    backends = pytest.importorskip("vllm.v1.attention.backends.registry").AttentionBackendEnum
    assert {backends[name].name for name in _ATTENTION.values()} == set(_ATTENTION.values())


def test_the_cache_is_given_in_bytes_and_only_safetensors_are_read() -> None:
    arguments = engine_arguments(pod_part(kv_cache_mebibytes=100), model_folder=Path("/models/m"), on_cpu=True)
    assert arguments["kv_cache_memory_bytes"] == 100 * 1024 * 1024
    assert arguments["load_format"] == "safetensors"
    assert arguments["trust_remote_code"] is False


def test_workers_are_spawned_and_nothing_is_reported_home() -> None:
    """C101."""
    environment = engine_environment(placed(1), cores=4, on_cpu=False)
    assert environment["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (4, "3"), (16, "12")])
def test_engine_and_server_share_the_cores_of_a_cpu_pod(cores: int, threads: str) -> None:
    environment = engine_environment(placed(0, cores), cores=cores, on_cpu=True)
    assert environment["OMP_NUM_THREADS"] == threads


def test_one_worker_on_the_cpu_is_the_engines_own_process() -> None:
    on_cpu = engine_arguments(placed(1), model_folder=Path("/m"), on_cpu=True)
    assert on_cpu["distributed_executor_backend"] == "uni"
    assert "distributed_executor_backend" not in engine_arguments(placed(1), model_folder=Path("/m"), on_cpu=False)


def test_the_installed_build_is_known() -> None:
    assert is_cpu_build()


def test_what_a_service_called_vllm_injects_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """C105."""
    for name in ("VLLM_PORT", "VLLM_SERVICE_HOST", "VLLM_PORT_80_TCP", "VLLM_CPU_KVCACHE_SPACE"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:80")
    prepare({})
    assert not [name for name in os.environ if name.startswith("VLLM_")]


def test_importing_the_server_loads_no_model_library_and_starts_no_thread() -> None:
    """C101: the engine's process is spawned from a main module that did nothing yet."""
    code = (
        "import sys, threading, tailhold_server.program, tailhold_server.backends, tailhold_server.testing, "
        "tailhold.serve, tailhold_server.adapters.engine\n"
        "print([n for n in ('torch', 'vllm', 'faiss', 'transformers') if n in sys.modules], "
        "threading.active_count())"
    )
    path = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **path}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[] 1"
