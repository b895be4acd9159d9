"""vLLM in a process of its own, spawned."""

import asyncio
import contextlib
import dataclasses
import multiprocessing
import os
import threading
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.observability import LogLevel
from tailhold_api.parts import PodPart
from tailhold_server.adapters.engine_arguments import (
    doubt_about,
    in_force,
    installed_version,
    is_one_process,
    unknown_arguments,
)
from tailhold_server.adapters.stderr import Overheard
from tailhold_server.errors import EngineDiedError, StartError
from tailhold_server.ports import Delta, EngineTimes, Likely, Sampling, TokenOdds

STOP_SECONDS = 2
"""The process is asked to end and killed after so long: no request is in it then that anybody waits for."""

_LOG_LEVELS = {LogLevel.DEBUG: "DEBUG", LogLevel.INFO: "INFO", LogLevel.WARNING: "WARNING"}


def engine_environment(pod: PodPart, *, cores: int, on_cpu: bool) -> dict[str, str]:
    """Environment variables that vLLM reads; to be set before it is imported. `cores` are all there are."""
    environment = {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": _LOG_LEVELS[pod.observability.log_level],
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if is_one_process(pod, on_cpu):
        threads = max(1, min(pod.placement.cpu.cores, cores) - server_threads(pod))
        environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads)}
    return environment


def server_threads(pod: PodPart) -> int:
    """Cores of a CPU pod that are left to the server and its embedder."""
    return max(1, pod.placement.cpu.cores // 4)


def prepare(environment: Mapping[str, str]) -> None:
    """Set what vLLM reads, and drop what a Service called `vllm` may have injected."""
    for name in [each for each in os.environ if _is_injected(each)]:
        del os.environ[name]
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # in GiB, and it would win over the bytes
    os.environ.update(environment)


def _is_injected(name: str) -> bool:
    return name.startswith("VLLM_") and ("_PORT" in name or "_SERVICE_" in name)


def import_vllm() -> None:
    """Raises StartError. The environment has to be prepared."""
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: F401
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: F401
    except Exception as error:  # whatever a library does when it is imported
        raise StartError(Reason.START_FAILED, f"vLLM cannot be imported: {error}", final=False) from error


class VllmEngine:
    """The engine's process, and the requests that it holds."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._llm: Any = None
        self._stopped = False

    async def start(self) -> None:
        """Starts the process and waits until it has loaded. After a cancellation only our own end ends it."""
        loop = asyncio.get_running_loop()
        started: asyncio.Future[Any] = loop.create_future()
        # A daemon: an interpreter that ends must not wait for a model that loads.
        given = (self._arguments, loop, started)
        threading.Thread(target=_start, args=given, name="engine-start", daemon=True).start()
        self._llm = await started

    def check(self, sampling: Sampling) -> None:
        """What vLLM itself would refuse: a token that the vocabulary has not, a schema that no grammar can hold."""
        from vllm.exceptions import VLLMValidationError

        knows = self._llm.input_processor
        given = (knows.model_config, knows.speculative_config, knows.structured_outputs_config, knows.tokenizer)
        try:
            _sampling_params(sampling).verify(*given)
        except VLLMValidationError as error:
            raise ValueError(str(error)) from error

    def generate(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, *, salt: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """Text comes detokenised, in whole characters; several tokens at once for a slow reader."""
        return self._generated(request_id, prompt_ids, sampling, salt)

    async def _generated(
        self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, salt: str
    ) -> AsyncGenerator[Delta, None]:
        from vllm.v1.engine.exceptions import EngineDeadError

        prompt = {"type": "token", "prompt_token_ids": list(prompt_ids)} | ({"cache_salt": salt} if salt else {})
        outputs = self._llm.generate(prompt, _sampling_params(sampling), request_id)
        first = True
        try:
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    yield _delta(output, first, sampling.logprobs)
                    first = False
        except EngineDeadError as error:
            raise EngineDiedError(str(error)) from error

    async def abort(self, request_id: str) -> None:
        """Ends a request in the engine."""
        if self.is_alive():
            await self._llm.abort(request_id)

    def is_alive(self) -> bool:
        """Whether the process runs and its outputs are read."""
        return self._llm is not None and not self._stopped and not self._llm.errored and self._process_runs()

    async def heartbeat(self) -> None:
        """A call that the engine's loop answers between two steps: no request, no metric, no step of the model."""
        await self._llm.is_sleeping()

    def process_ids(self) -> list[int]:
        """Of the engine's core."""
        return [process.pid for process in self._processes()]

    def metrics_text(self) -> str:
        """What vLLM registered in prometheus_client's registry."""
        from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

        registry = CollectorRegistry()
        registry.register(_Only(REGISTRY, "vllm"))
        return generate_latest(registry).decode()

    def description(self) -> dict[str, object]:
        """vLLM's version and what it runs with."""
        import vllm

        said: dict[str, object] = {
            "name": "vllm",
            "version": vllm.__version__,
            "processes": self.process_ids(),
        }
        if doubt := doubt_about(vllm.__version__):
            said["doubt"] = doubt
        if self._llm is not None:
            config = self._llm.vllm_config
            said |= in_force(config)
            said["dtype"] = str(config.model_config.dtype).removeprefix("torch.")
            said["device"] = config.device_config.device_type
        return said

    async def stop(self) -> None:
        """Ends the process: asked first, killed after some seconds; one that still loads is killed."""
        if self._stopped:
            return
        self._stopped = True
        if self._llm is None:
            _kill_children()
        else:
            self._end_requests()
            await asyncio.to_thread(self._llm.shutdown, STOP_SECONDS)
            self._llm = None  # freed now: at the interpreter's end its finaliser would fail

    def _end_requests(self) -> None:
        """Each request's reader gets an error now: nobody reads the engine's outputs after this."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if self._llm.output_handler is not None:
            self._llm.output_handler.cancel()
        self._llm.output_processor.propagate_error(EngineDeadError())

    def _process_runs(self) -> bool:
        return all(process.is_alive() for process in self._processes())

    def _processes(self) -> list[Any]:
        if self._llm is None:
            return []
        manager = self._llm.engine_core.resources.engine_manager
        return list(manager.processes) if manager is not None else []


def _delta(output: Any, first: bool, most: int | None) -> Delta:
    completion = output.outputs[0]
    cached = output.num_cached_tokens or 0
    times = _times(output.metrics) if first or completion.finish_reason else None
    odds = _odds(completion, most)
    return Delta(completion.text, len(completion.token_ids), completion.finish_reason, cached, times, odds)


def _times(stats: Any) -> EngineTimes | None:
    """From the engine's core, a process of this machine: its clock is ours. None where its statistics are off."""
    if stats is None or not (stats.scheduled_ts and stats.first_token_ts):
        return None
    return EngineTimes(stats.scheduled_ts, stats.first_token_ts, stats.last_token_ts)


class _Only:
    """The families of another registry whose names begin so."""

    def __init__(self, registry: Any, prefix: str) -> None:
        self._registry = registry
        self._prefix = prefix

    def collect(self) -> list[Any]:
        return [family for family in self._registry.collect() if family.name.startswith(self._prefix)]


def _kill_children() -> None:
    for child in multiprocessing.active_children():
        child.kill()


def _start(arguments: dict[str, Any], loop: asyncio.AbstractEventLoop, started: asyncio.Future[Any]) -> None:
    llm, error = _built(arguments)
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, started, llm, error)
    del llm, error, started  # a library keeps a failed import's traceback, and with it this frame and what it names


def _settle(started: asyncio.Future[Any], llm: Any, error: BaseException | None) -> None:
    if started.done():
        return
    if error is None:
        started.set_result(llm)
    else:
        started.set_exception(error)


def _built(arguments: dict[str, Any]) -> tuple[Any, BaseException | None]:
    with Overheard() as overheard:
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            _check(arguments, [field.name for field in dataclasses.fields(AsyncEngineArgs)])
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments)), None
        except StartError as error:
            return None, error
        except Exception as error:
            cause = overheard.last_error() or error
            return None, StartError(Reason.START_FAILED, f"vLLM does not start: {cause}", final=False)


def _check(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Said before the engine starts: an argument of another version is nothing that trying again could help."""
    unknown = unknown_arguments(arguments, known)
    if unknown:
        text = f"vLLM {installed_version()} has no argument {', '.join(unknown)}: take it out of `engine.extraArgs`"
        raise StartError(Reason.START_FAILED, text, final=True)


def _sampling_params(sampling: Sampling) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=dict(sampling.logit_bias) or None,
        logprobs=sampling.logprobs,
        structured_outputs=StructuredOutputsParams(json=sampling.json_schema) if sampling.json_schema else None,
        output_kind=RequestOutputKind.DELTA,
    )


def _odds(completion: Any, most: int | None) -> tuple[TokenOdds, ...]:
    if not completion.logprobs:
        return ()
    places = zip(completion.token_ids, completion.logprobs, strict=True)
    return tuple(_token_odds(drawn, likely, most or 0) for drawn, likely in places)


def _token_odds(drawn: int, likely: Mapping[int, Any], most: int) -> TokenOdds:
    """vLLM tells the token that was drawn too, where it is none of the likeliest."""
    ranked = sorted(likely.values(), key=lambda each: each.rank)[:most]
    top = tuple(Likely(each.decoded_token or "", each.logprob) for each in ranked)
    return TokenOdds(likely[drawn].decoded_token or "", likely[drawn].logprob, top)
