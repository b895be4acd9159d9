"""What an inspection Job looks at before a pod starts, and what it finds there."""

from pydantic import Field

from tailhold_api.codec import digest
from tailhold_api.fields import Model
from tailhold_api.parts import PodPart
from tailhold_api.sources import ModelSource, SnapshotSource
from tailhold_api.stand_in import is_stand_in


class InspectionPart(Model):
    """What is looked at. Equal parts are looked at once."""

    generator: ModelSource
    """Where the language model's files are."""
    embedder: ModelSource
    """Where the embedding model's files are."""
    image: str
    """The server's image: its vLLM is asked which arguments it knows."""
    arguments: tuple[str, ...] = ()
    """Names in `engine.extraArgs`, sorted."""
    snapshots: SnapshotSource | None = None
    """Where snapshots are that were built elsewhere: looked at only whether it is mounted."""
    stand_in: bool = False
    """No model is read: the pod answers with the stand-in engine."""


class GeneratorFacts(Model):
    """A language model, by its config.json, the headers of its safetensors and its tokenizer. 0 is not known."""

    architecture: str = Field("", max_length=200)
    """The class that vLLM looks up, as `LlamaForCausalLM`."""
    layers: int = Field(0, ge=0)
    """Layers that keep keys and values."""
    hidden: int = Field(0, ge=0)
    """Width of the residual stream."""
    intermediate: int = Field(0, ge=0)
    """Width of the feed-forward part."""
    heads: int = Field(0, ge=0)
    """Attention heads."""
    key_value_numbers: int = Field(0, ge=0)
    """Numbers that one token leaves in the KV cache of one layer, for all heads: keys and values, or one latent."""
    key_value_heads: int = Field(0, ge=0)
    """Heads that keys and values have; 1 where a latent is shared by all."""
    vocabulary: int = Field(0, ge=0)
    """Rows of the embedding matrix."""
    tied: bool = False
    """Whether the output layer is the embedding matrix again, and takes no memory of its own."""
    context_tokens: int = Field(0, ge=0)
    """Longest sequence that the model was made for."""
    dtype: str = Field("", max_length=32)
    """Number format that the config names, as `bfloat16`."""
    quantization: str = Field("", max_length=64)
    """Method with which the weights were quantised when they were stored; empty for none."""
    parameters: int = Field(0, ge=0)
    """Numbers in all tensors."""
    weight_bytes: int = Field(0, ge=0)
    """Bytes of all tensors as they are stored."""
    highest_token: int = Field(0, ge=0)
    """Largest id that the tokenizer can give."""
    has_chat_template: bool = True
    """Whether the tokenizer says how a conversation is written."""


class EmbedderFacts(Model):
    """An embedding model. 0 is not known."""

    architecture: str = Field("", max_length=200)
    """As `BertModel`."""
    dimension: int = Field(0, ge=0)
    """Length of a vector."""
    intermediate: int = Field(0, ge=0)
    """Width of the feed-forward part."""
    context_tokens: int = Field(0, ge=0)
    """Longest input."""
    parameters: int = Field(0, ge=0)
    """Numbers in all tensors: each takes 4 bytes, since the embedder computes in float32."""
    weight_bytes: int = Field(0, ge=0)
    """Bytes of all tensors as they are stored."""


class Inspection(Model):
    """What was found, and in what."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the InspectionPart."""
    models: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the two sources alone: the same models under another image are the same files."""
    generator: GeneratorFacts | None = None
    """None where no model is read: with the stand-in engine."""
    embedder: EmbedderFacts | None = None
    """None where no model is read."""
    vllm: str = Field("", max_length=64)
    """Installed version."""
    cpu_build: bool = False
    """Whether that vLLM computes on the CPU, whatever devices a pod is given."""
    doubt: str = Field("", max_length=500)
    """What is not known of that version."""
    unknown_arguments: tuple[str, ...] = Field((), max_length=32)
    """Names in `engine.extraArgs` that this vLLM does not have."""


def inspection_part(pod: PodPart, image: str) -> InspectionPart:
    """What has to be looked at before a pod part is started from an image."""
    arguments = tuple(sorted(pod.engine.extra_args))
    return InspectionPart(
        generator=pod.generator.model,
        embedder=pod.embedder.model,
        image=image,
        arguments=arguments,
        snapshots=pod.snapshots,
        stand_in=is_stand_in(pod.pod.env),
    )


def models_digest(generator: ModelSource, embedder: ModelSource, *, stand_in: bool = False) -> str:
    """Digest of the two sources, and of whether they are read at all."""
    return digest(InspectionPart(generator=generator, embedder=embedder, image="", stand_in=stand_in))
