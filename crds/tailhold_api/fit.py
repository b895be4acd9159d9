"""Whether what a spec asks for can run: its files, its card and its memory against what an inspection found."""

from collections.abc import Iterator
from typing import NamedTuple

from tailhold_api.cards import card_of
from tailhold_api.conditions import Reason
from tailhold_api.engine import AttentionBackend
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts, Inspection
from tailhold_api.memory import MEBIBYTE, MemorySum, Place, kv_bytes_per_token, memory_sums, rendered
from tailhold_api.names import STAND_IN_VARIABLE
from tailhold_api.serving import DataType, Quantization
from tailhold_api.spec import Spec
from tailhold_api.stand_in import StandInError, stand_in_of

LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""A variable by which vLLM takes sequences that the model was not made for."""
_NEEDED = (
    ("generator.quantization", Quantization.FP8, (7, 5)),
    ("generator.dtype", DataType.BFLOAT16, (8, 0)),
    ("engine.attentionBackend", AttentionBackend.FLASH_ATTENTION, (8, 0)),
    ("engine.attentionBackend", AttentionBackend.FLASH_INFER, (7, 5)),
)
"""Least compute capability for the values of fields, as vLLM 0.32's own checks have it."""


class Misfit(NamedTuple):
    """One thing that cannot be."""

    reason: Reason
    message: str
    """Field, value, what is allowed, and the next step."""


def misfits(spec: Spec, facts: Inspection, chunks: int | None) -> tuple[Misfit, ...]:
    """All that cannot be, the first to be mended first. What is not known is no misfit."""
    found = [*_of_stand_in(spec), *_of_engine(spec, facts)]
    if facts.generator and facts.embedder:
        found += [*_of_model(spec, facts.generator), *_of_embedder(spec, facts.embedder)]
        found += [*_of_cache(spec, facts.generator), *_of_disk(spec, facts.generator, facts.embedder)]
    found += _of_card(spec)
    return (*found, *(_too_large(each) for each in memory_sums(spec, facts, chunks) if not each.fits))


def _of_stand_in(spec: Spec) -> Iterator[Misfit]:
    try:
        stand_in_of(spec.pod.env)
    except StandInError as error:
        yield _misfit(f"`pod.env` has `{STAND_IN_VARIABLE}` with {error}")


def _of_engine(spec: Spec, facts: Inspection) -> Iterator[Misfit]:
    size = spec.engine.block_size_tokens
    if facts.cpu_build and size % 32:
        yield _misfit(
            f"`engine.blockSizeTokens` is {size}: the server's image has vLLM's CPU build, which takes multiples of 32"
        )
    if facts.unknown_arguments:
        unknown = ", ".join(f"`{name}`" for name in facts.unknown_arguments)
        yield Misfit(
            Reason.DOES_NOT_FIT,
            f"`engine.extraArgs` has {unknown}: vLLM {facts.vllm} in the server's image has no such argument; take it"
            " away, or give an image with another vLLM in `server.image`",
        )


def _of_model(spec: Spec, model: GeneratorFacts) -> Iterator[Misfit]:
    asked, most = spec.engine.max_model_tokens, model.context_tokens
    if most and asked > most and not any(each.name == LONGER for each in spec.pod.env):
        yield _misfit(f"`engine.maxModelTokens` is {asked:,}: the model was made for {most:,} at the most; lower it")
    parallel = spec.engine.tensor_parallel
    if model.heads and model.heads % parallel:
        yield _misfit(
            f"`engine.tensorParallel` is {parallel}: it must divide the model's {model.heads} attention heads"
        )
    if model.vocabulary and model.highest_token >= model.vocabulary:
        yield _misfit(
            f"`generator.model`: the tokenizer gives ids up to {model.highest_token:,}, the model has rows for"
            f" {model.vocabulary:,}: they are not of one model; put the model's own tokenizer beside it"
        )
    if not model.has_chat_template:
        yield _misfit(
            "`generator.model`: the tokenizer has no chat template, so it is no model for answers: take one that is"
            " tuned for chat, or put its chat_template.jinja beside it"
        )
    if model.quantization not in ("", "fp8") and spec.generator.quantization is Quantization.FP8:
        yield _misfit(
            f"`generator.quantization` is FP8: the weights are stored as {model.quantization} already; take it away"
        )


def _of_embedder(spec: Spec, model: EmbedderFacts) -> Iterator[Misfit]:
    if model.dimension and spec.embedder.dimension != model.dimension:
        yield _misfit(f"`embedder.dimension` is {spec.embedder.dimension}: the model gives {model.dimension}")
    if model.context_tokens and spec.embedder.max_tokens > model.context_tokens:
        yield _misfit(
            f"`embedder.maxTokens` is {spec.embedder.max_tokens:,}: the model reads {model.context_tokens:,} at the"
            " most; lower it, and `corpus.chunking.maxTokens` with it"
        )


def _of_cache(spec: Spec, model: GeneratorFacts) -> Iterator[Misfit]:
    """vLLM does not start where its longest request has no room."""
    if spec.engine.gpu_memory_fraction is not None:
        return
    given, asked = spec.engine.kv_cache_mebibytes, spec.engine.max_model_tokens
    need = -(-asked * kv_bytes_per_token(spec, model) // MEBIBYTE)
    if need > given:
        yield _misfit(
            f"`engine.kvCacheMebibytes` is {given:,}: one request of `engine.maxModelTokens` {asked:,} takes {need:,};"
            " raise the one, or lower the other"
        )


def _of_disk(spec: Spec, generator: GeneratorFacts, embedder: EmbedderFacts) -> Iterator[Misfit]:
    """A pod that writes more than its own cache may hold is evicted, after minutes of fetching."""
    sizes = {
        "generator.model": (spec.generator.model, generator.weight_bytes),
        "embedder.model": (spec.embedder.model, embedder.weight_bytes),
    }
    fetched = {name: size for name, (source, size) in sizes.items() if source.is_fetched}
    given, need = spec.placement.cache_mebibytes, -(-sum(fetched.values()) // MEBIBYTE)
    if need > given and spec.server.cache is None:
        yield _misfit(
            f"`placement.cacheMebibytes` is {given:,}: the weights of {' and '.join(f'`{each}`' for each in fetched)}"
            f" take {need:,} when they are fetched; raise it, or name a claim in `server.cache`"
        )


def _of_card(spec: Spec) -> Iterator[Misfit]:
    gpu = spec.placement.gpu
    capability = card_of(gpu).capability if gpu.count else None
    values = {
        "generator.quantization": spec.generator.quantization,
        "generator.dtype": spec.generator.dtype,
        "engine.attentionBackend": spec.engine.attention_backend,
    }
    for field, value, least in _NEEDED:
        if capability and values[field] == value and capability < least:
            yield _misfit(
                f"`{field}` is {value.value}: it needs compute capability {_dotted(least)}, and"
                f" `placement.gpu.product` {gpu.product} has {_dotted(capability)}"
            )


def _too_large(found: MemorySum) -> Misfit:
    field = "placement.memoryMebibytes" if found.place is Place.HOST else "placement.gpu"
    over = found.mebibytes - (found.limit_mebibytes or 0)
    largest = max(found.lines, key=lambda each: each.mebibytes)
    head = f"`{field}` has {over:,} MiB too little; the largest part is {largest.what}, {largest.mebibytes:,} MiB"
    return Misfit(Reason.DOES_NOT_FIT, "\n".join((head, *rendered(found))))


def _misfit(message: str) -> Misfit:
    return Misfit(Reason.DOES_NOT_FIT, message)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
