"""Embedding models from a folder of safetensors, as sentence-transformers lays them out or plain."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModel

from tailhold_api.conditions import Reason
from tailhold_api.serving import Embedder, EmbedderDevice
from tailhold_server.errors import StartError
from tailhold_server.ports import Encoder
from tailhold_server.vectors import NotFiniteError

_BATCH_TOKENS = 8192
"""Padded tokens in one forward pass."""
_BATCH_TEXTS = 64
_POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "lasttoken"}


@dataclass(frozen=True)
class Layout:
    """What is done with the model's output."""

    pooling: str
    normalise: bool


def load_encoder(folder: Path, settings: Embedder) -> Encoder:
    """Load onto the device that `settings` ask for. Raises StartError; pickled weights are never opened."""
    files = _files(folder)
    layout = _layout(folder)
    model = _model(folder, _device(settings.device))
    dimension = int(model.config.hidden_size)
    if dimension != settings.dimension:
        raise StartError(
            Reason.START_FAILED,
            f"`embedder.dimension` is {settings.dimension}, the model in {folder} gives {dimension}",
        )
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_truncation(settings.max_tokens)
    return TorchEncoder(model, tokenizer, layout, _fingerprint(folder, files, layout))


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's tokenizer.json without the truncation and padding that it may carry. Raises StartError."""
    path = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises the bare class
        raise StartError(Reason.MODEL_NOT_FOUND, f"{path}: no tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class TorchEncoder:
    """A BERT-like model on torch. Threads are the caller's to set."""

    def __init__(self, model: Any, tokenizer: Tokenizer, layout: Layout, fingerprint: str) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._whole = Tokenizer.from_str(tokenizer.to_str())
        self._whole.no_truncation()
        self._layout = layout
        self._fingerprint = fingerprint

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._model.config.hidden_size)

    @property
    def fingerprint(self) -> str:
        """Over config, tokenizer, weights, and what is done with the output."""
        return self._fingerprint

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row for each text; a text beyond `embedder.maxTokens` is cut there. Raises NotFiniteError."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        vectors = np.zeros((len(ids), self.dimension), dtype=np.float32)
        for rows in batches([len(row) for row in ids]):
            vectors[rows] = self._forward([ids[row] for row in rows])
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            raise NotFiniteError(tuple(np.flatnonzero(bad).tolist()))
        return vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text with the special ones, nothing cut. Any thread."""
        return [len(encoding.ids) for encoding in self._whole.encode_batch(list(texts))]

    @torch.inference_mode()
    def _forward(self, ids: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        longest = max(map(len, ids))
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
        padded = torch.tensor([[*row, *[0] * (longest - len(row))] for row in ids])
        device = self._model.device
        mask, padded = mask.to(device), padded.to(device)
        states = self._model(input_ids=padded, attention_mask=mask).last_hidden_state.float()
        vectors = _pool(states, mask, self._layout.pooling)
        if self._layout.normalise:
            vectors = vectors / vectors.norm(dim=1, keepdim=True)
        rows: NDArray[np.float32] = vectors.cpu().numpy()
        return rows


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in batches of like length, so that little is padding; each index once."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        # The first is the longest, so it gives the batch its width.
        if batch and (len(batch) == _BATCH_TEXTS or (len(batch) + 1) * lengths[batch[0]] > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _pool(states: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    if pooling == "cls":
        return states[:, 0]
    if pooling == "lasttoken":
        return states[torch.arange(len(states)), mask.sum(dim=1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


def _device(wanted: EmbedderDevice) -> str:
    if wanted is EmbedderDevice.CPU:
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if wanted is EmbedderDevice.GPU:
        raise StartError(
            Reason.START_FAILED,
            "`embedder.device` is GPU and the pod has none: set CPU, or `placement.gpu.count`",
        )
    return "cpu"


def _model(folder: Path, device: str) -> Any:
    try:
        model = AutoModel.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise StartError(Reason.START_FAILED, f"{folder}: no embedder: {error}") from error
    return model.to(device).eval()


def _files(folder: Path) -> list[Path]:
    weights = sorted(folder.glob("*.safetensors"))
    needed = [folder / "config.json", folder / "tokenizer.json"]
    missing = [path.name for path in needed if not path.is_file()]
    if not weights:
        missing.append("*.safetensors")
    if missing:
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"no embedder in {folder}: {', '.join(missing)} not there; check `embedder.model`",
        )
    return [*needed, *weights]


def _layout(folder: Path) -> Layout:
    path = folder / "modules.json"
    if not path.is_file():
        return Layout("mean", normalise=True)
    try:
        modules = {entry["type"].rpartition(".")[2]: entry["path"] for entry in json.loads(path.read_text())}
        pooling = _pooling(folder / modules["Pooling"] / "config.json") if "Pooling" in modules else "mean"
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise StartError(Reason.START_FAILED, f"{path} is not sentence-transformers': {error!r}") from error
    unknown = modules.keys() - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise StartError(Reason.START_FAILED, f"{path}: modules {sorted(unknown)} are not supported")
    return Layout(pooling, normalise="Normalize" in modules)


def _pooling(path: Path) -> str:
    settings = json.loads(path.read_text())
    asked = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value is True]
    names = {name.removeprefix("pooling_mode_").removesuffix("_token").removesuffix("_tokens") for name in asked}
    names = names or {str(settings.get("pooling_mode", "mean"))}
    if len(names) != 1 or not names <= _POOLINGS.keys():
        raise StartError(Reason.START_FAILED, f"{path}: pooling {sorted(names)} is not supported; mean, cls are")
    return _POOLINGS[names.pop()]


def _fingerprint(folder: Path, files: Sequence[Path], layout: Layout) -> str:
    total = hashlib.sha256(f"{layout.pooling}\0{layout.normalise}\0".encode())
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        total.update(f"{path.relative_to(folder)}\0{content}\0".encode())
    return total.hexdigest()
