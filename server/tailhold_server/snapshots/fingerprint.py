"""Whether token ids of a snapshot mean the same words to a generator."""

import hashlib
from pathlib import Path

from tailhold_api.conditions import Reason
from tailhold_server.errors import StartError


def tokenizer_fingerprint(folder: Path) -> str:
    """SHA-256 of tokenizer.json: equal for models that share it. Raises StartError."""
    path = folder / "tokenizer.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        message = f"{path}: no tokenizer ({error.strerror}): check `generator.model`"
        raise StartError(Reason.MODEL_NOT_FOUND, message) from error
