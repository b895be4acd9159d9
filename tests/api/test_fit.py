"""What can be known before a pod starts: the card, the memory, and what a model can do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailhold_api.cards import UNKNOWN, Card, card_of
from tailhold_api.codec import load_lenient
from tailhold_api.fit import misfits
from tailhold_api.inspection import EmbedderFacts, GeneratorFacts, Inspection, inspection_part, models_digest
from tailhold_api.memory import MEBIBYTE, MemorySum, Place, kv_bytes_per_token, memory_sums, rendered
from tailhold_api.parts import pod_part
from tailhold_api.placement import Gpu
from tailhold_api.sources import ModelSource
from tailhold_api.spec import Spec

# Llama 3 8B's config.json and the sum of its safetensors' headers.
EIGHT = GeneratorFacts(
    architecture="LlamaForCausalLM",
    layers=32,
    hidden=4096,
    intermediate=14336,
    heads=32,
    key_value_numbers=2 * 8 * 128,
    key_value_heads=8,
    vocabulary=128256,
    context_tokens=8192,
    dtype="bfloat16",
    parameters=8_030_261_248,
    weight_bytes=16_060_522_496,
    highest_token=128255,
)
SMALL = EmbedderFacts(
    architecture="BertModel", dimension=384, intermediate=1536, context_tokens=512, parameters=22_713_728
)
FOUND = Inspection(digest="0" * 64, models="1" * 64, generator=EIGHT, embedder=SMALL, vllm="0.32.0")
H200 = {"gpu": {"product": "NVIDIA-H200"}, "memoryMebibytes": 16384}
MODEL = {"pvc": {"claimName": "models", "path": "m"}}


def spec(**blocks: Any) -> Spec:
    body: dict[str, Any] = {
        "generator": {"model": MODEL},
        "embedder": {"model": MODEL, "dimension": 384},
        "index": {"store": {"claimName": "snapshots"}},
        "corpus": {"sources": [{"name": "a", "pvc": {"claimName": "documents"}}]},
        "placement": H200,
    }
    merged = {name: {**body.get(name, {}), **block} for name, block in blocks.items()}
    return load_lenient(Spec, body | merged)


def told(wanted: Spec, found: Inspection = FOUND, chunks: int | None = None) -> str:
    return "\n".join(each.message for each in misfits(wanted, found, chunks))


def place(sums: tuple[MemorySum, ...], which: Place) -> MemorySum:
    return next(each for each in sums if each.place is which)


def line(found: MemorySum, what: str) -> int:
    return next(each.mebibytes for each in found.lines if each.what == what)


@pytest.mark.parametrize(
    ("gpu", "card"),
    [
        ({"product": "NVIDIA-H200"}, Card(143771, (9, 0))),
        ({"product": "NVIDIA-H100-80GB-HBM3"}, Card(81559, (9, 0))),
        ({"product": "NVIDIA-A100-SXM4-40GB"}, Card(40960, (8, 0))),
        ({"product": "NVIDIA-A100-SXM4-80GB"}, Card(81920, (8, 0))),
        ({"product": "NVIDIA-L40S"}, Card(46068, (8, 9))),
        ({"product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}, Card(9728, (9, 0))),
        ({"resourceName": "nvidia.com/mig-3g.20gb"}, Card(19456, None)),
        ({"product": "NVIDIA-H200", "memoryMebibytes": 1000}, Card(1000, (9, 0))),
        ({"product": "Something-New"}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_a_card_is_known_by_how_the_spec_names_it(gpu: dict[str, Any], card: Card) -> None:
    assert card_of(load_lenient(Gpu, gpu)) == card


def test_what_is_fetched_has_to_fit_the_pods_own_cache_or_a_claim() -> None:
    stored = {"objectStore": {"url": "s3://models/eight"}}
    small = told(spec(generator={"model": stored}))
    assert "`placement.cacheMebibytes` is 8,192: the weights of `generator.model` take 15,317" in small
    roomy = spec(generator={"model": stored}, placement={"cacheMebibytes": 20000})
    shared = spec(generator={"model": stored}, server={"cache": {"claimName": "fetched"}})
    assert not any("cacheMebibytes" in told(each) for each in (spec(), roomy, shared))


def test_an_eight_billion_model_adds_up_as_published() -> None:
    """Weights 16 GB, 128 KiB of cache a token: the figures that model cards of Llama 3 8B give."""
    card = place(memory_sums(spec(), FOUND, 1000), Place.GPU)
    assert line(card, "weights") == 15317
    assert kv_bytes_per_token(spec(), EIGHT) == 128 * 1024
    assert card.limit_mebibytes == 143771
    assert card.fits
    assert card.mebibytes == sum(each.mebibytes for each in card.lines)
    assert "8,192 tokens" in "\n".join(rendered(card)), "1 GiB of cache at 128 KiB a token"


def test_fp8_halves_the_linear_weights_and_not_the_words() -> None:
    whole = line(place(memory_sums(spec(), FOUND, 0), Place.GPU), "weights")
    half = line(place(memory_sums(spec(generator={"quantization": "FP8"}), FOUND, 0), Place.GPU), "weights")
    words = 2 * EIGHT.vocabulary * EIGHT.hidden
    assert half == pytest.approx(whole - (EIGHT.parameters - words) / MEBIBYTE, abs=1)


def test_gpus_share_weights_and_heads_until_a_head_would_be_cut() -> None:
    def split(count: int) -> Spec:
        return spec(engine={"tensorParallel": count}, placement={"gpu": {"count": count, "product": "NVIDIA-H200"}})

    whole = line(place(memory_sums(split(1), FOUND, 0), Place.GPU), "weights")
    assert line(place(memory_sums(split(2), FOUND, 0), Place.GPU), "weights") == pytest.approx(whole / 2, abs=1)
    assert [kv_bytes_per_token(split(count), EIGHT) // 1024 for count in (1, 2, 8, 16)] == [128, 64, 16, 16]
    latent = EIGHT.model_copy(update={"key_value_numbers": 576, "key_value_heads": 1, "layers": 61})
    assert kv_bytes_per_token(split(8), latent) == 61 * 576 * 2


@given(chunks=st.integers(0, 10**9), more=st.integers(1, 10**7))
def test_a_larger_index_never_takes_less(chunks: int, more: int) -> None:
    sums = [place(memory_sums(spec(), FOUND, each), Place.HOST).mebibytes for each in (chunks, chunks + more)]
    assert sums[0] <= sums[1]
    assert sums[0] >= 2 * chunks * 384 * 4 / MEBIBYTE


def test_each_kind_of_index_takes_its_own_memory() -> None:
    def index(**asked: Any) -> int:
        return line(place(memory_sums(spec(index=asked), FOUND, 1_000_000), Place.HOST), "index, twice")

    flat, graph, codes = index(), index(kind="HNSW"), index(kind="IVFPQ")
    assert codes < flat < graph
    assert flat == -(-2 * 1_000_000 * 384 * 4 // MEBIBYTE)


@given(cache=st.integers(64, 400_000), tokens=st.integers(64, 8192), running=st.integers(1, 512))
def test_what_is_refused_for_memory_names_the_sum_and_what_fits_is_silent(
    cache: int, tokens: int, running: int
) -> None:
    engine = {
        "kvCacheMebibytes": cache,
        "maxBatchedTokens": tokens,
        "maxRunningRequests": running,
        "maxModelTokens": 256,
    }
    wanted = spec(engine=engine)
    card = place(memory_sums(wanted, FOUND, 0), Place.GPU)
    words = told(wanted)
    assert (f"{card.mebibytes:,} of 143,771 MiB" in words) == (card.mebibytes > 143771)
    assert bool(words) == (not card.fits)


def test_without_a_known_card_the_sum_is_shown_and_not_judged() -> None:
    wanted = spec(placement={"gpu": {"count": 1}}, engine={"kvCacheMebibytes": 4_000_000})
    card = place(memory_sums(wanted, FOUND, 0), Place.GPU)
    assert card.limit_mebibytes is None
    assert card.fits
    assert "of a card that is not known" in rendered(card)[0]
    assert told(wanted) == ""


def test_a_cpu_pod_has_everything_on_its_host_and_so_has_a_cpu_build_beside_a_gpu() -> None:
    on_cpu = spec(placement={"gpu": {"count": 0}, "memoryMebibytes": 65536})
    (host,) = memory_sums(on_cpu, FOUND, 0)
    assert host.place is Place.HOST
    assert {"weights", "KV cache", "embedder", "programs"} <= {each.what for each in host.lines}
    stood_in = spec(placement={"gpu": {"count": 1}, "memoryMebibytes": 65536})
    (same,) = memory_sums(stood_in, FOUND.model_copy(update={"cpu_build": True}), 0)
    assert same.mebibytes == host.mebibytes


@pytest.mark.parametrize(
    ("blocks", "changed", "words"),
    [
        ({"engine": {"maxModelTokens": 16384, "kvCacheMebibytes": 9000}}, {}, "made for 8,192"),
        ({"engine": {"maxModelTokens": 8192, "kvCacheMebibytes": 1000}}, {}, "takes 1,024"),
        (
            {"engine": {"tensorParallel": 3}, "placement": {"gpu": {"count": 3, "product": "NVIDIA-H200"}}},
            {},
            "must divide the model's 32 attention heads",
        ),
        ({}, {"highest_token": 128256}, "the tokenizer gives ids up to 128,256"),
        ({}, {"has_chat_template": False}, "no chat template"),
        ({"generator": {"quantization": "FP8"}}, {"quantization": "awq"}, "stored as awq already"),
        ({"embedder": {"dimension": 768}}, {}, "`embedder.dimension` is 768: the model gives 384"),
        ({"embedder": {"maxTokens": 1024}}, {}, "`embedder.maxTokens` is 1,024: the model reads 512"),
        (
            {"generator": {"dtype": "BFloat16"}, "placement": {"gpu": {"product": "Tesla-T4"}}},
            {},
            "`generator.dtype` is BFloat16: it needs compute capability 8.0, and `placement.gpu.product` Tesla-T4",
        ),
        (
            {"generator": {"quantization": "FP8"}, "placement": {"gpu": {"product": "Tesla-V100-SXM2-16GB"}}},
            {},
            "it needs compute capability 7.5",
        ),
        ({"placement": {"memoryMebibytes": 4096}}, {}, "`placement.memoryMebibytes` has"),
        ({"engine": {"kvCacheMebibytes": 140000}}, {}, "`placement.gpu` has"),
    ],
)
def test_what_cannot_be_names_field_value_and_what_is_there(
    blocks: dict[str, Any], changed: dict[str, Any], words: str
) -> None:
    found = FOUND.model_copy(update={"generator": EIGHT.model_copy(update=changed)})
    assert words in told(spec(**blocks), found)


def test_a_model_in_order_has_no_misfit_and_what_is_not_known_is_none() -> None:
    assert told(spec(), chunks=100_000) == ""
    blank = Inspection(digest="0" * 64, models="1" * 64, generator=GeneratorFacts(), embedder=EmbedderFacts())
    assert told(spec(), blank) == ""
    assert told(spec(), FOUND.model_copy(update={"generator": None, "embedder": None})) == ""


def test_longer_sequences_are_let_through_where_the_variable_of_vllm_says_so() -> None:
    engine = {"maxModelTokens": 16384, "kvCacheMebibytes": 9000}
    variables = {"env": [{"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"}]}
    assert told(spec(engine=engine, pod=variables)) == ""


def test_arguments_and_block_sizes_of_the_image_are_held_against_the_spec() -> None:
    unknown = FOUND.model_copy(update={"unknown_arguments": ("frobnicate",)})
    assert "`frobnicate`: vLLM 0.32.0 in the server's image has no such argument" in told(spec(), unknown)
    on_cpu = FOUND.model_copy(update={"cpu_build": True})
    wanted = spec(engine={"blockSizeTokens": 16}, placement={"memoryMebibytes": 65536})
    assert "takes multiples of 32" in told(wanted, on_cpu)


def test_what_is_inspected_is_the_files_the_image_and_the_names_of_arguments_alone() -> None:
    def part(**blocks: Any) -> str:
        return inspection_part(pod_part("p", spec(**blocks)), "image:1").model_dump_json()

    assert part() == part(engine={"kvCacheMebibytes": 2048}, placement={"cpu": {"cores": 4}})
    assert part(engine={"extraArgs": {"max_logprobs": "5"}}) == part(engine={"extraArgs": {"max_logprobs": "6"}})
    assert part() != part(engine={"extraArgs": {"max_logprobs": "5"}})
    assert part() != part(generator={"model": {"path": "/elsewhere"}})
    here, there = ModelSource(path="/a"), ModelSource(path="/b")
    assert models_digest(here, there) != models_digest(there, here)
