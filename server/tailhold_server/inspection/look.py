"""One look at everything that a pod would start with."""

from pathlib import Path

from tailhold_api.codec import digest
from tailhold_api.inspection import Inspection, InspectionPart, models_digest
from tailhold_server.adapters.engine_arguments import (
    doubt_about,
    installed_version,
    is_cpu_build,
    known_arguments,
    unknown_arguments,
)
from tailhold_server.delivery.deliver import Places, mounted
from tailhold_server.inspection.model import embedder_facts, generator_facts
from tailhold_server.inspection.remote import model_facts
from tailhold_server.settings import ServerSettings

STAND_IN_VERSION = "stand-in"


def inspect(part: InspectionPart, claims: Path) -> Inspection:
    """Reads configs, headers and the source of the installed vLLM; loads and runs none of it. Raises StartError.

    No model is read for a stand-in, which has none.
    """
    places = Places.of(ServerSettings(claims=claims))
    if part.snapshots and not part.snapshots.object_store:
        mounted(part.snapshots, places)
    found = Inspection(digest=digest(part), models=_models(part))
    if part.stand_in:
        return found.model_copy(update={"vllm": STAND_IN_VERSION})
    version = installed_version()
    known = known_arguments()
    return found.model_copy(
        update={
            "generator": generator_facts(*model_facts(part.generator, places)),
            "embedder": embedder_facts(*model_facts(part.embedder, places)),
            "vllm": version,
            "cpu_build": is_cpu_build(),
            "doubt": doubt_about(version) if version else "",
            "unknown_arguments": unknown_arguments(dict.fromkeys(part.arguments), known) if known else (),
        }
    )


def _models(part: InspectionPart) -> str:
    return models_digest(part.generator, part.embedder, stand_in=part.stand_in)
