"""What vLLM is started with."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rag_server import pod_part

from tailhold_api.parts import PodPart
from tailhold_api.placement import Cpu, Gpu, Placement
from tailhold_api.serving import Engine
from tailhold_server.adapters.engine import (
    _ARGUMENTS,
    engine_arguments,
    engine_environment,
    is_cpu_build,
    prepare,
)


def placed(gpus: int, cores: int = 4, *, tensor_parallel: int = 1) -> PodPart:
    placement = Placement(gpu=Gpu(count=gpus), cpu=Cpu(cores=cores))
    return pod_part(tensor_parallel=tensor_parallel).model_copy(update={"placement": placement})


def test_every_field_of_the_engine_is_an_argument() -> None:
    taken = {*_ARGUMENTS, "kv_cache_mebibytes"}
    assert taken == set(Engine.model_fields)


@pytest.mark.engine
def test_every_argument_is_one_of_the_installed_vllm() -> None:
    arg_utils = pytest.importorskip("vllm.engine.arg_utils")
    known = {field.name for field in dataclasses.fields(arg_utils.AsyncEngineArgs)}
    assert set(engine_arguments(placed(0), model_folder=Path("/models/m"), on_cpu=True)) <= known


def test_the_cache_is_given_in_bytes_and_only_safetensors_are_read() -> None:
    arguments = engine_arguments(pod_part(kv_cache_mebibytes=100), model_folder=Path("/models/m"), on_cpu=True)
    assert arguments["kv_cache_memory_bytes"] == 100 * 1024 * 1024
    assert arguments["load_format"] == "safetensors"
    assert arguments["trust_remote_code"] is False


def test_workers_are_spawned_and_nothing_is_reported_home() -> None:
    """C101."""
    environment = engine_environment(placed(1), cores=4, is_local=True, on_cpu=False)
    assert environment["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert environment["HF_HUB_OFFLINE"] == environment["TRANSFORMERS_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in engine_environment(placed(1), cores=4, is_local=False, on_cpu=False)


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (4, "3"), (16, "12")])
def test_engine_and_server_share_the_cores_of_a_cpu_pod(cores: int, threads: str) -> None:
    environment = engine_environment(placed(0, cores), cores=cores, is_local=True, on_cpu=True)
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
