"""One look at everything that a pod would start with."""

from pathlib import Path

from tailhold_api.codec import digest
from tailhold_api.inspection import Inspection, InspectionPart, models_digest
from tailhold_api.sources import ModelSource
from tailhold_server.adapters.engine_arguments import (
    doubt_about,
    installed_version,
    is_cpu_build,
    known_arguments,
    unknown_arguments,
)
from tailhold_server.inspection.hub import hub_folder, hub_weights
from tailhold_server.inspection.model import embedder_facts, generator_facts
from tailhold_server.inspection.weights import Weights, read_weights
from tailhold_server.models import model_folder

STAND_IN_VERSION = "stand-in"


def inspect(part: InspectionPart, claims: Path, *, stand_in: bool = False) -> Inspection:
    """Reads configs, headers and the source of the installed vLLM; loads and runs none of it. Raises StartError.

    With `stand_in` no model is read: the stand-in engine has none.
    """
    found = Inspection(digest=digest(part), models=models_digest(part.generator, part.embedder))
    if stand_in:
        return found.model_copy(update={"vllm": STAND_IN_VERSION})
    version = installed_version()
    known = known_arguments()
    return found.model_copy(
        update={
            "generator": generator_facts(*_files(part.generator, claims)),
            "embedder": embedder_facts(*_files(part.embedder, claims)),
            "vllm": version,
            "cpu_build": is_cpu_build(),
            "doubt": doubt_about(version) if version else "",
            "unknown_arguments": unknown_arguments(dict.fromkeys(part.arguments), known) if known else (),
        }
    )


def _files(source: ModelSource, claims: Path) -> tuple[Path, Weights]:
    """Configs and headers; a model on the hub is not fetched for it."""
    if source.hugging_face:
        return hub_folder(source.hugging_face), hub_weights(source.hugging_face)
    folder = model_folder(source, claims)
    return folder, read_weights(folder)
