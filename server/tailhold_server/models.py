"""Where a model's files are, and whether they may be loaded."""

import json
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.delivery import HuggingFaceModel
from tailhold_api.sources import ModelSource
from tailhold_server.errors import StartError

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Formats that can run code when they are read."""
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "1_Pooling/*")
"""Files of a hub repository that are fetched."""


def model_folder(source: ModelSource, claims: Path) -> Path:
    """The model's folder, checked. Raises StartError that names the path."""
    folder = _folder(source, claims)
    check_model(folder)
    return folder


def is_local(source: ModelSource) -> bool:
    """Whether no network is needed."""
    return source.hugging_face is None


def check_model(folder: Path) -> None:
    """Raises StartError unless the folder holds a model of safetensors that needs no code of its own."""
    if not folder.is_dir():
        raise _not_found(f"{folder} is not a folder")
    config = _config(folder)
    if "auto_map" in config:
        raise StartError(Reason.START_FAILED, f"{folder}/config.json names code of its own (auto_map): refused")
    weights = [each for each in folder.iterdir() if each.suffix == ".safetensors"]
    pickled = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLED)
    if not weights and pickled:
        raise StartError(Reason.START_FAILED, f"{folder} has pickled weights alone ({pickled[0]}): give safetensors")
    if not weights:
        raise _not_found(f"{folder} has no *.safetensors")


def _folder(source: ModelSource, claims: Path) -> Path:
    if source.pvc is not None:
        claim = claims / source.pvc.claim_name
        if not claim.is_dir():
            raise _not_found(f"claim {source.pvc.claim_name} is not at {claim}")
        return _within(claim, source.pvc.path)
    if source.path is not None:
        return Path(source.path)
    if source.hugging_face is None:
        raise _not_found("no source is given")
    return _download(source.hugging_face)


def _within(claim: Path, path: str) -> Path:
    folder = (claim / path).resolve()
    if not folder.is_relative_to(claim.resolve()):
        raise _not_found(f"{path} leads out of the claim at {claim}")
    return folder


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise _not_found(f"{path} is not there") from None
    except (OSError, ValueError) as error:
        raise _not_found(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise _not_found(f"{path} is not a model's config")
    return config


def _download(model: HuggingFaceModel) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model.repo, revision=model.revision, allow_patterns=list(WANTED)))
    except Exception as error:
        text = f"{model.repo} at {model.revision} cannot be fetched from the hub: {error}"
        raise StartError(Reason.MODEL_NOT_FOUND, text, final=False) from error


def _not_found(message: str) -> StartError:
    return StartError(Reason.MODEL_NOT_FOUND, message)
