"""What answers a question: models, retrieval, prompt, batching and admission."""

from enum import StrEnum

from tailhold_api.fields import Model, live, restart
from tailhold_api.sources import ModelSource


class DataType(StrEnum):
    """Number format of weights and activations."""

    AUTO = "Auto"
    BFLOAT16 = "BFloat16"
    FLOAT16 = "Float16"
    FLOAT32 = "Float32"


class Quantization(StrEnum):
    """How weights are stored."""

    NONE = "None"
    FP8 = "FP8"


class Generator(Model):
    """The language model that writes the answer."""

    model: ModelSource
    """Where its files are: config, tokenizer and safetensors weights. Pickled weights are refused."""
    dtype: DataType = restart(DataType.AUTO)
    """`Auto` takes the model's own format, float16 where the card has no bfloat16."""
    quantization: Quantization = restart(Quantization.NONE)
    """`FP8` halves the weights' memory and needs a card that computes in fp8."""
    served_name: str | None = restart(None, min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._/:-]+$")
    """The model id that clients send. The pipeline's name where it is not given. Keep it when the model changes:
    clients of both revisions then use one name."""


class EmbedderDevice(StrEnum):
    """Where the embedder computes."""

    AUTO = "Auto"
    CPU = "CPU"
    GPU = "GPU"


class Embedder(Model):
    """The model that turns questions and passages into vectors."""

    model: ModelSource
    """Where its files are: a BERT-like encoder with its tokenizer and safetensors weights."""
    dimension: int = restart(ge=8, le=8192)
    """Length of a vector. Must be what the model gives: a difference is refused before anything is indexed."""
    query_prefix: str = restart("", max_length=500)
    """Put before each question, for models trained with one (`query: `)."""
    passage_prefix: str = restart("", max_length=500)
    """Put before each passage, for models trained with one (`passage: `)."""
    max_tokens: int = restart(256, ge=16, le=8192)
    """Longest input with the special tokens and the prefix. `corpus.chunking.maxTokens` has to leave room for both."""
    device: EmbedderDevice = restart(EmbedderDevice.AUTO)
    """`Auto` is the GPU where the pod has one."""


class Overflow(StrEnum):
    """What happens to a prompt that is too long."""

    DROP_CHUNKS = "DropChunks"
    TRUNCATE = "Truncate"
    REFUSE = "Refuse"


class Prompt(Model):
    """How question and context become a prompt."""

    system: str = live(
        "Answer the question from the numbered sources. Cite each source that you use by its number in square "
        "brackets, as in [1]. If the sources do not hold the answer, say so.",
        max_length=16000,
    )
    """The system message. It comes first in every prompt, so that its KV blocks are shared."""
    max_prompt_tokens: int | None = live(None, ge=64, le=1048575)
    """Most tokens of a prompt: system message, history, sources and question. What `engine.maxModelTokens` leaves where
    it is not given. Prefill time grows with it: a lower one holds the time to the first token, at the price of sources
    and history that are left out. Must be less than `engine.maxModelTokens`."""
    on_overflow: Overflow = live(Overflow.DROP_CHUNKS)
    """What is done where all does not fit. `DropChunks` leaves out the least relevant sources, then the oldest turns,
    and refuses a question that is too long by itself. `Truncate` does so too, and cuts the end of such a question
    instead. `Refuse` leaves nothing out: the request gets a 400 that says how much too long it is. What
    `retrieval.contextTokens` leaves out is no overflow. The answer says what was left out, under `tailhold.context`."""
    max_answer_tokens: int = live(256, ge=1, le=65536)
    """Longest answer where the client asks for none. A client may ask for less or more, within the context. Must be
    less than `engine.maxModelTokens`."""
    temperature: float = live(0.0, ge=0.0, le=2.0)
    """How freely the answer's words are chosen where the client sends no `temperature`, or null. 0 takes the likeliest
    word each time: the answer stays closest to the sources, and the same prompt nearly always gives the same one.
    Higher values vary the wording, cost no time, and make wrong facts and missing citations likelier, most of all with
    small models. Raise it where answers are to read less alike; above 1 few models make sense."""


class ContextOrder(StrEnum):
    """In which order retrieved chunks stand in the prompt."""

    RELEVANCE = "Relevance"
    STABLE = "Stable"


class Retrieval(Model):
    """What is looked up for each question."""

    top_k: int = live(5, ge=1, le=100)
    """Chunks put before the model. Each costs its tokens in prefill time."""
    min_score: float = live(-1.0, ge=-1.0, le=1.0)
    """Chunks below this score are left out, even if fewer than `topK` remain. -1 keeps all."""
    context_tokens: int = live(1024, ge=0, le=1000000)
    """Most tokens of context, counted by the generator's tokenizer. The least relevant chunks are dropped first."""
    context_order: ContextOrder = live(ContextOrder.RELEVANCE)
    """`Relevance` puts the best chunk first. `Stable` orders the chosen chunks by id, so that like questions share a
    prefix and its KV blocks."""


class Batching(Model):
    """How questions that arrive together are embedded and searched together."""

    max_wait_milliseconds: int = live(2, ge=0, le=1000)
    """Longest time that a question waits for others. An idle server never waits: at once when idle, otherwise with
    the batch that forms while the one before it runs."""
    max_batch: int = live(32, ge=1, le=4096)
    """Most questions in one batch."""


class AdmissionPolicy(StrEnum):
    """What happens to a question that cannot start at once."""

    BOUNDED = "Bounded"
    OFF = "Off"


class Admission(Model):
    """When a question is refused rather than queued."""

    policy: AdmissionPolicy = live(AdmissionPolicy.BOUNDED)
    """`Bounded` refuses with 429 and Retry-After beyond `maxQueued`; `Off` queues without end."""
    max_queued: int = live(64, ge=0, le=100000)
    """Questions waiting beyond those that run."""
