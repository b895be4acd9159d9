"""Models on the hub: their configs are fetched, their weights' headers read where they are."""

from pathlib import Path

from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel
from tailhold_server.errors import StartError
from tailhold_server.inspection.weights import Weights

_CONFIGS = ("*.json", "*.jinja", "*.txt")
_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "I16": 2}
"""All other formats take a byte or less for each number."""


def hub_folder(model: HuggingFaceModel) -> Path:
    """The folder with the small files. Raises StartError; trying again may help."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model.repo, revision=model.revision, allow_patterns=list(_CONFIGS)))
    except Exception as error:
        raise _unreachable(model, error) from error


def hub_weights(model: HuggingFaceModel) -> Weights:
    """From the first bytes of each file. Raises StartError."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        by_dtype = HfApi().get_safetensors_metadata(model.repo, revision=model.revision).parameter_count
    except NotASafetensorsRepoError as error:
        text = f"{model.repo} at {model.revision} has no safetensors weights: give a model that has"
        raise StartError(Reason.MODEL_NOT_FOUND, text) from error
    except Exception as error:
        raise _unreachable(model, error) from error
    size = sum(count * _BYTES.get(dtype, 1) for dtype, count in by_dtype.items())
    most = max(by_dtype, key=lambda name: by_dtype[name], default="")
    return Weights(sum(by_dtype.values()), size, most)


def _unreachable(model: HuggingFaceModel, error: Exception) -> StartError:
    text = f"{model.repo} at {model.revision} cannot be read from the hub: {error}"
    return StartError(Reason.MODEL_NOT_FOUND, text, final=False)
