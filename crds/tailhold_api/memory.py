"""What a pod needs of a GPU's memory and of its own, line by line, before it is started."""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from tailhold_api.cards import card_of
from tailhold_api.fields import Model
from tailhold_api.index_memory import index_bytes, vector_bytes
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts, Inspection
from tailhold_api.serving import DataType, EmbedderDevice, Quantization
from tailhold_api.spec import Spec

MEBIBYTE = 1 << 20
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1}
_DTYPES = {DataType.BFLOAT16: "bfloat16", DataType.FLOAT16: "float16", DataType.FLOAT32: "float32"}
_FLOAT32 = 4
_ENCODER_TOKENS = 8192
"""Padded tokens in one forward pass of the embedder."""
_SCORES = 1 << 24
"""Scores of exact search that are held at once."""
_GRAPH_MEBIBYTES = 512
_CARD_PROGRAM_MEBIBYTES = 1024
_HOST_PROGRAM_MEBIBYTES = {True: 3584, False: 2304}
"""Code and heap of both processes: with CUDA's libraries, and with the CPU build. docs/explanation/memory.md says how
they were measured."""


class Place(StrEnum):
    """Whose memory is added up."""

    GPU = "GPU"
    HOST = "Host"


class Line(Model):
    """One user of memory."""

    what: str = Field(max_length=64)
    """Who."""
    mebibytes: int = Field(ge=0)
    """How much."""
    how: str = Field("", max_length=200)
    """What it is made of, with the fields that change it."""


class MemorySum(Model):
    """All users of one memory."""

    place: Place
    """Of each GPU of a pod, or of the pod on the host."""
    lines: tuple[Line, ...] = Field(max_length=16)
    """The users."""
    mebibytes: int = Field(ge=0)
    """Their sum."""
    limit_mebibytes: int | None = Field(None, ge=0)
    """What there is; None where the card is not known."""

    @property
    def fits(self) -> bool:
        """Whether there is enough, as far as is known."""
        return self.limit_mebibytes is None or self.mebibytes <= self.limit_mebibytes


def memory_sums(spec: Spec, facts: Inspection, chunks: int | None) -> tuple[MemorySum, ...]:
    """Of each GPU, and of the host. `chunks` are the passages in the index; None before it is built.

    Empty where no model was read.
    """
    if facts.generator is None or facts.embedder is None:
        return ()
    on_card = spec.placement.gpu.count > 0 and not facts.cpu_build
    lines = _host(spec, facts.generator, facts.embedder, chunks, on_card)
    host = _sum(Place.HOST, lines, spec.placement.memory_mebibytes)
    if not on_card:
        return (host,)
    limit = card_of(spec.placement.gpu).memory_mebibytes
    return _sum(Place.GPU, _card(spec, facts.generator, facts.embedder), limit), host


def kv_bytes_per_token(spec: Spec, facts: GeneratorFacts) -> int:
    """Of one GPU's KV cache: layers x numbers of a layer x bytes of a number, the heads shared out over the GPUs.

    A head is never cut: with more GPUs than heads each GPU has one, and a latent is whole on each.
    """
    parallel = min(spec.engine.tensor_parallel, max(1, facts.key_value_heads))
    return facts.layers * (facts.key_value_numbers // parallel) * _BYTES.get(_dtype(spec, facts), 2)


def rendered(found: MemorySum) -> tuple[str, ...]:
    """Text for people: a line for each user, then the sum beside the limit."""
    place = "each GPU" if found.place is Place.GPU else "the pod on its host"
    limit = f" of {found.limit_mebibytes:,}" if found.limit_mebibytes is not None else ", of a card that is not known"
    lines = (f"  {each.mebibytes:>9,} MiB  {each.what}{f' ({each.how})' if each.how else ''}" for each in found.lines)
    return (f"memory of {place}: {found.mebibytes:,}{limit} MiB", *lines)


def engine_lines(spec: Spec, model: GeneratorFacts) -> Iterable[Line]:
    """What the engine takes of each GPU. Tensor parallelism shares out weights, heads and the feed-forward part."""
    engine = spec.engine
    yield _weights(spec, model)
    if engine.gpu_memory_fraction is None:
        yield _kv_cache(spec, model, "each GPU")
    else:
        yield _one_request(spec, model)
    yield _activations(spec, model)
    if not engine.enforce_eager:
        yield Line(what="CUDA graphs", mebibytes=_GRAPH_MEBIBYTES, how="`engine.compile.cudaGraphs`")
    yield Line(what="CUDA and its libraries", mebibytes=_CARD_PROGRAM_MEBIBYTES)


def _card(spec: Spec, model: GeneratorFacts, embedder: EmbedderFacts) -> Iterable[Line]:
    yield from engine_lines(spec, model)
    if spec.embedder.device is not EmbedderDevice.CPU:
        yield from _encoder(embedder)


def _host(
    spec: Spec, model: GeneratorFacts, embedder: EmbedderFacts, chunks: int | None, on_card: bool
) -> Iterable[Line]:
    if not on_card:
        yield _weights(spec, model)
        yield _kv_cache(spec, model, "the pod")
        yield _activations(spec, model)
    elif spec.engine.kv_offload_mebibytes:
        given = spec.engine.kv_offload_mebibytes
        yield Line(what="KV blocks off the card", mebibytes=given, how="`engine.kvOffloadMebibytes`")
    if not on_card or spec.embedder.device is EmbedderDevice.CPU:
        yield from _encoder(embedder)
    yield _index(spec, chunks)
    yield Line(what="search", mebibytes=_up(2 * _FLOAT32 * _SCORES), how="scores of one block of questions")
    shared = spec.placement.shared_memory_mebibytes if on_card else 0
    if shared:
        yield Line(what="shared memory", mebibytes=shared, how="`placement.sharedMemoryMebibytes`")
    yield Line(what="programs", mebibytes=_HOST_PROGRAM_MEBIBYTES[on_card], how="code and heap of both processes")


def _weights(spec: Spec, model: GeneratorFacts) -> Line:
    """As they are loaded: in the number format that is asked for, or as they are stored."""
    parallel = spec.engine.tensor_parallel
    stored = f"{model.parameters:,} parameters"
    if model.quantization:
        return Line(what="weights", mebibytes=_up(model.weight_bytes / parallel), how=f"{stored}, {model.quantization}")
    dtype = _dtype(spec, model)
    size = _BYTES.get(dtype, 2)
    if spec.generator.quantization is not Quantization.FP8:
        return Line(what="weights", mebibytes=_up(model.parameters * size / parallel), how=f"{stored}, {dtype}")
    words = model.vocabulary * model.hidden * (1 if model.tied else 2)
    linear = max(0, model.parameters - words)
    how = f"{stored}, fp8, words in {dtype}"
    return Line(what="weights", mebibytes=_up((linear + words * size) / parallel), how=how)


def _kv_cache(spec: Spec, model: GeneratorFacts, where: str) -> Line:
    given, each = spec.engine.kv_cache_mebibytes, kv_bytes_per_token(spec, model)
    if not each:
        return Line(what="KV cache", mebibytes=given, how="`engine.kvCacheMebibytes`")
    tokens = given * MEBIBYTE // each
    how = (
        f"{each:,} bytes a token: {tokens:,} tokens in {where},"
        f" {tokens / spec.engine.max_model_tokens:.1f} requests of {spec.engine.max_model_tokens:,}"
    )
    return Line(what="KV cache", mebibytes=given, how=how)


def _one_request(spec: Spec, model: GeneratorFacts) -> Line:
    """Where vLLM takes what its share of the card leaves: the longest request has to find room at the least."""
    need = spec.engine.max_model_tokens * kv_bytes_per_token(spec, model)
    return Line(what="KV cache", mebibytes=_up(need), how="one request of `maxModelTokens` at the least")


def _activations(spec: Spec, model: GeneratorFacts) -> Line:
    """The most that one step holds: hidden states and the feed-forward part of all tokens, and float32 scores of all
    words for one token of each request, with their copies while they are sorted. docs/explanation/memory.md holds it
    against the real engine."""
    engine = spec.engine
    size = _BYTES.get(_dtype(spec, model), 2)
    wide = 5 * model.hidden + 4 * model.intermediate / engine.tensor_parallel
    states = engine.max_batched_tokens * wide * size
    words = engine.max_running_requests * model.vocabulary * _FLOAT32 * 3
    how = f"a step of {engine.max_batched_tokens:,} tokens, {engine.max_running_requests:,} requests"
    return Line(what="activations", mebibytes=_up(states + words), how=how)


def _encoder(model: EmbedderFacts) -> Iterable[Line]:
    """float32 throughout; one forward pass holds hidden states, attention and the feed-forward part."""
    yield Line(what="embedder", mebibytes=_up(_FLOAT32 * model.parameters), how=f"{model.parameters:,} parameters")
    states = _ENCODER_TOKENS * (6 * model.dimension + 2 * model.intermediate) * _FLOAT32
    yield Line(what="embedder's batch", mebibytes=_up(states), how=f"{_ENCODER_TOKENS:,} tokens")


def _index(spec: Spec, chunks: int | None) -> Line:
    """Twice: a new snapshot is loaded beside the one that serves, which stays for an undo."""
    if chunks is None:
        return Line(what="index, twice", mebibytes=0, how="not built yet; added up again when it is")
    index, dimension = spec.index, spec.embedder.dimension
    structure = index.ivfpq_structure or index.hnsw_structure
    size = index_bytes(structure, dimension, chunks)
    if index.ivfpq_structure:  # The vectors are read from the mapped file: the kernel takes that memory back.
        size -= vector_bytes(dimension, chunks)
    how = f"{index.kind.value} of {chunks:,} passages x {dimension}; the next one is loaded beside it"
    return Line(what="index, twice", mebibytes=_up(2 * size), how=how)


def _dtype(spec: Spec, model: GeneratorFacts) -> str:
    """As vLLM computes: float32 weights are taken at half their width unless float32 is asked for."""
    kept = model.dtype if model.dtype != "float32" else ""
    return _DTYPES.get(spec.generator.dtype) or kept or "bfloat16"


def _sum(place: Place, lines: Iterable[Line], limit: int | None) -> MemorySum:
    found = tuple(lines)
    return MemorySum(place=place, lines=found, mebibytes=sum(each.mebibytes for each in found), limit_mebibytes=limit)


def _up(size: float) -> int:
    return int(-(-size // MEBIBYTE))
