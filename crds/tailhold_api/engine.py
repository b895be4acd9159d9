"""vLLM's settings: each field is one argument of the engine, or a check on several."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from tailhold_api.fields import Model, Rule, part, restart
from tailhold_api.grammar import keyed

OWN_ARGUMENTS = (
    "attention_backend",
    "block_size",
    "compilation_config",
    "cudagraph_capture_sizes",
    "distributed_executor_backend",
    "dtype",
    "enable_log_requests",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "kv_offloading_size",
    "load_format",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "model",
    "num_gpu_blocks_override",
    "quantization",
    "served_model_name",
    "speculative_config",
    "tensor_parallel_size",
    "trust_remote_code",
)
"""Arguments of vLLM's that fields of the spec, or the server itself, give: `extraArgs` may not."""


class AttentionBackend(StrEnum):
    """Which kernels compute attention."""

    AUTO = "Auto"
    FLASH_ATTENTION = "FlashAttention"
    FLASH_INFER = "FlashInfer"
    TRITON = "Triton"


class CompileMode(StrEnum):
    """How much of the model is compiled before it serves."""

    AUTO = "Auto"
    NONE = "None"
    DEFAULT = "Default"
    REDUCE_OVERHEAD = "ReduceOverhead"
    MAX_AUTOTUNE = "MaxAutotune"


class CompileBackend(StrEnum):
    """What turns the traced graph into code."""

    INDUCTOR = "Inductor"
    EAGER = "Eager"


class DynamicShapes(StrEnum):
    """What the compiler may assume of a batch's size."""

    BACKED = "Backed"
    UNBACKED = "Unbacked"
    BACKED_SIZE_OBLIVIOUS = "BackedSizeOblivious"


class CudaGraphMode(StrEnum):
    """Which steps are recorded once and replayed."""

    AUTO = "Auto"
    NONE = "None"
    PIECEWISE = "Piecewise"
    FULL = "Full"
    FULL_DECODE_ONLY = "FullDecodeOnly"
    FULL_AND_PIECEWISE = "FullAndPiecewise"


class CudaGraphs(Model):
    """Recording of the engine's steps as CUDA graphs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.mode != 'None' || self.sizes.size() == 0",
            "`sizes` may not be given when `mode` is None: nothing is recorded; take `sizes` away, or choose a mode",
            {"mode": "Piecewise", "sizes": [1, 2, 4]},
            {"mode": "None", "sizes": [1, 2, 4]},
        ),
    )

    mode: CudaGraphMode = restart(CudaGraphMode.AUTO)
    """`Auto` follows `compile.mode`. `Piecewise` leaves attention out of the graph, `Full` records it too,
    `FullDecodeOnly` only in steps without prefill, `FullAndPiecewise` both kinds: fastest, and the most memory."""
    sizes: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = restart((), max_length=64)
    """Batch sizes to record, in requests of one step; others are padded to the next one. Empty is vLLM's own list.
    Each costs start-up time and memory on the card; a short list for the batches that occur starts faster."""


class Compile(Model):
    """What is compiled before the engine serves."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.backend != 'Eager' || self.mode != 'MaxAutotune'",
            "`mode` may not be MaxAutotune when `backend` is Eager: only Inductor tunes kernels",
            {"backend": "Inductor", "mode": "MaxAutotune"},
            {"backend": "Eager", "mode": "MaxAutotune"},
        ),
    )

    mode: CompileMode = restart(CompileMode.AUTO)
    """`Auto` is vLLM's own choice. `None` compiles nothing. `Default` compiles without CUDA graphs. `ReduceOverhead`
    adds them: fewer launches from Python, more memory on the card. `MaxAutotune` also measures variants of each kernel:
    the longest start. Measure before you choose: the best one depends on model, card and load."""
    backend: CompileBackend = restart(CompileBackend.INDUCTOR)
    """`Inductor` writes fused kernels. `Eager` runs the traced graph as it is, to tell a compiler's error from the
    model's."""
    dynamic_shapes: DynamicShapes = restart(DynamicShapes.BACKED)
    """`Backed` learns the batch's size from the first batch and guards it. `Unbacked` assumes nothing, never compiles
    again and may be slower. `BackedSizeOblivious` keeps the sizes and makes no special case of 0 and 1."""
    cuda_graphs: CudaGraphs = part(CudaGraphs)
    """Recording of steps."""


class SpeculativeMethod(StrEnum):
    """Where guessed tokens come from."""

    NONE = "None"
    NGRAM = "NGram"


class Speculative(Model):
    """Tokens that are guessed cheaply and checked by the model in one step. Answers are the same."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.lookupMin <= self.lookupMax",
            "`lookupMin` must be at most `lookupMax`: lower it, or raise `lookupMax`",
            {"method": "NGram", "lookupMin": 2, "lookupMax": 4},
            {"method": "NGram", "lookupMin": 5, "lookupMax": 4},
        ),
    )

    method: SpeculativeMethod = restart(SpeculativeMethod.NONE)
    """`NGram` finds the last tokens earlier in the prompt and guesses what followed them there: made for answers that
    quote their sources. It costs a wasted step where the guess is wrong."""
    tokens: int = restart(3, ge=1, le=16)
    """Tokens guessed at a time."""
    lookup_min: int = restart(2, ge=1, le=16)
    """Fewest last tokens that have to be found again, with `NGram`."""
    lookup_max: int = restart(4, ge=1, le=16)
    """Most last tokens that are looked for, with `NGram`."""


class Engine(Model):
    """vLLM's settings. What the engine really runs with is shown at `/v1/tuning`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.maxModelTokens % self.blockSizeTokens == 0",
            "`maxModelTokens` must be a multiple of `blockSizeTokens`: a sequence is kept in whole blocks",
            {"maxModelTokens": 2048, "blockSizeTokens": 32},
            {"maxModelTokens": 1000, "blockSizeTokens": 32},
        ),
        Rule(
            "!has(self.maxBlocksPerSequence)"
            " || self.maxModelTokens <= self.maxBlocksPerSequence * self.blockSizeTokens",
            "`maxModelTokens` must be at most `maxBlocksPerSequence` * `blockSizeTokens`: raise one, or lower it",
            {"maxModelTokens": 8192, "blockSizeTokens": 16, "maxBlocksPerSequence": 512},
            {"maxModelTokens": 32768, "blockSizeTokens": 16, "maxBlocksPerSequence": 512},
        ),
        Rule(
            "!has(self.kvBlocks) || self.maxModelTokens <= self.kvBlocks * self.blockSizeTokens",
            "`kvBlocks` * `blockSizeTokens` must be at least `maxModelTokens`: the longest request has to fit",
            {"maxModelTokens": 2048, "blockSizeTokens": 32, "kvBlocks": 64},
            {"maxModelTokens": 2048, "blockSizeTokens": 32, "kvBlocks": 63},
        ),
        Rule(
            "self.maxRunningRequests <= self.maxBatchedTokens",
            "`maxRunningRequests` must be at most `maxBatchedTokens`: in a step each request adds a token; lower it, or"
            " raise `maxBatchedTokens`",
            {"maxRunningRequests": 256, "maxBatchedTokens": 256},
            {"maxRunningRequests": 257, "maxBatchedTokens": 256},
        ),
        Rule(
            "!('enable_chunked_prefill' in self.extraArgs) || self.extraArgs['enable_chunked_prefill'] != 'false'"
            " || self.maxModelTokens <= self.maxBatchedTokens",
            "`maxModelTokens` must be at most `maxBatchedTokens` when `extraArgs` sets `enable_chunked_prefill` to"
            " false: a prompt is then read in one step; lower it, or raise `maxBatchedTokens`",
            {"maxModelTokens": 2048, "maxBatchedTokens": 2048, "extraArgs": {"enable_chunked_prefill": "false"}},
            {"maxModelTokens": 4096, "maxBatchedTokens": 2048, "extraArgs": {"enable_chunked_prefill": "false"}},
        ),
        Rule(
            "self.attentionBackend != 'FlashInfer' || self.blockSizeTokens in [16, 32, 64]",
            "`blockSizeTokens` must be 16, 32 or 64 when `attentionBackend` is FlashInfer",
            {"attentionBackend": "FlashInfer", "blockSizeTokens": 64},
            {"attentionBackend": "FlashInfer", "blockSizeTokens": 128},
        ),
        Rule(
            "!self.enforceEager || (self.compile.mode in ['Auto', 'None']"
            " && self.compile.cudaGraphs.mode in ['Auto', 'None'])",
            "`compile` may not ask for compilation or CUDA graphs when `enforceEager` is true: set it to false",
            {"enforceEager": False, "compile": {"mode": "MaxAutotune"}},
            {"enforceEager": True, "compile": {"mode": "MaxAutotune"}},
        ),
        Rule(
            # The API server compares a whole number with a bound cut to a whole one: 0 would pass as 0.05.
            "!has(self.gpuMemoryFraction) || (self.gpuMemoryFraction >= 0.05 && self.gpuMemoryFraction <= 0.98)",
            "`gpuMemoryFraction` must be from 0.05 to 0.98: a share of the card, no percentage",
            {"gpuMemoryFraction": 0.9},
            {"gpuMemoryFraction": 0},
        ),
        keyed(
            "extraArgs",
            "name.matches('^[a-z][a-z0-9_]{0,99}$')",
            "`extraArgs` must be named as vLLM's `AsyncEngineArgs` names them, with underscores, as in `max_logprobs`",
            {"extraArgs": {"max_logprobs": "5"}},
            {"extraArgs": {"--max-logprobs": "5"}},
        ),
        keyed(
            "extraArgs",
            f"!(name in {list(OWN_ARGUMENTS)!r})",
            "`extraArgs` may not give what a field of the spec gives, or the server itself: use the field",
            {"extraArgs": {"max_logprobs": "5"}},
            {"extraArgs": {"max_model_len": "4096"}},
        ),
    )

    max_model_tokens: int = restart(2048, ge=256, le=1048576)
    """Longest prompt and answer together. Each running request may need this much KV cache."""
    block_size_tokens: int = restart(32, ge=16, le=256, multiple_of=16)
    """Tokens in a block of the KV cache. Larger blocks cost fewer look-ups and waste more at each sequence's end. The
    CPU build takes multiples of 32 only, FlashInfer 16, 32 and 64."""
    kv_cache_mebibytes: int = restart(1024, ge=64, le=4194304)
    """Memory of the KV cache, in bytes and not as a share of the card: index and embedder have taken theirs before.
    Does not count where `gpuMemoryFraction` is given."""
    kv_blocks: int | None = restart(None, ge=1, le=100000000)
    """Blocks of the KV cache, whatever the memory would hold: for a cache of a known size in a test. Fewer make
    requests wait; more than fit stop the start."""
    gpu_memory_fraction: float | None = restart(None, ge=0.05, le=0.98)
    """Share of the card that the engine may use, weights and KV cache together, in place of `kvCacheMebibytes`. The
    rest is left to index and embedder, and must hold them. Prefer `kvCacheMebibytes`: it means the same on any card."""
    max_blocks_per_sequence: int | None = restart(None, ge=1, le=1048576)
    """Longest block table of one request. vLLM sizes it by itself; given here, a `maxModelTokens` that does not fit in
    it is refused."""
    max_running_requests: int = restart(16, ge=1, le=4096)
    """Requests in one batch of the engine. More raises throughput and each request's time between tokens."""
    max_batched_tokens: int = restart(2048, ge=64, le=1048576)
    """Tokens in one step of the engine: a smaller chunk of prefill delays running answers less and takes longer
    itself."""
    prefix_caching: bool = restart(True)
    """Keep the KV blocks of prompts that begin alike. The system prompt and popular chunks are then prefilled once."""
    kv_offload_mebibytes: int = restart(0, ge=0, le=16777216)
    """Host memory that takes KV blocks which the card has no room for, and gives them back when a prompt begins alike
    again. Counts within `placement.memoryMebibytes`. 0 offloads nothing. It is a capacity and no threshold: vLLM has no
    swap space any more."""
    attention_backend: AttentionBackend = restart(AttentionBackend.AUTO)
    """`Auto` is vLLM's choice for the card. Each has its own legal block sizes and cards."""
    tensor_parallel: int = restart(1, ge=1, le=16)
    """GPUs that share one model. Must be `placement.gpu.count` or less."""
    enforce_eager: bool = restart(False)
    """Skip compilation and CUDA graphs: starts faster, answers slower. The CPU build is best served with `true`."""
    compile: Compile = part(Compile)
    """What is compiled before the engine serves."""
    speculative: Speculative = part(Speculative)
    """Guessing tokens ahead."""
    extra_args: dict[str, Annotated[str, Field(max_length=4000)]] = restart({}, max_length=32)
    """Arguments of vLLM's that have no field here, by the name in `AsyncEngineArgs`, as text: `"5"`, `"0.5"`, `"true"`,
    a word, or JSON. One that the vLLM of the server's image does not know is refused by name before a pod starts."""
