"""Where a model's files are, and whether they may be loaded."""

import json
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.sources import ModelSource
from tailhold_server.delivery.deliver import Places, deliver_model
from tailhold_server.delivery.progress import Tell, silent
from tailhold_server.errors import StartError

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Formats that can run code when they are read."""


def model_folder(source: ModelSource, places: Places, tell: Tell = silent) -> Path:
    """The model's folder, fetched where it has to be, and checked. Raises StartError that says what to do."""
    folder = deliver_model(source, places, tell)
    check_model(folder)
    return folder


def check_model(folder: Path) -> None:
    """Raises StartError unless the folder holds a model of safetensors that needs no code of its own."""
    if not folder.is_dir():
        raise _not_found(f"{folder} is not a folder")
    check_config(folder)
    weights = [each for each in folder.iterdir() if each.suffix == ".safetensors"]
    pickled = sorted(each.name for each in folder.iterdir() if each.suffix in PICKLED)
    if not weights and pickled:
        raise StartError(Reason.START_FAILED, f"{folder} has pickled weights alone ({pickled[0]}): give safetensors")
    if not weights:
        raise _not_found(f"{folder} has no *.safetensors")


def check_config(folder: Path) -> None:
    """Raises StartError where there is no config.json, or one that needs code of its own."""
    if "auto_map" in _config(folder):
        raise StartError(Reason.START_FAILED, f"{folder}/config.json names code of its own (auto_map): refused")


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


def _not_found(message: str) -> StartError:
    return StartError(Reason.MODEL_NOT_FOUND, message)
