"""The headers of safetensors files: what the tensors are, and whether the files are whole."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tailhold_api.conditions import Reason
from tailhold_server.errors import StartError

_LONGEST_HEADER = 100_000_000
"""safetensors' own limit."""
_INDEX = "model.safetensors.index.json"


class Weights(NamedTuple):
    """All tensors of a model."""

    parameters: int
    size: int
    """Bytes as they are stored."""
    dtype: str
    """Of most of the numbers, as safetensors names it, such as `BF16`."""


def read_weights(folder: Path) -> Weights:
    """From the headers alone, in milliseconds for any size. Raises StartError naming a file that is not whole."""
    by_dtype: dict[str, int] = {}
    size = 0
    for path in _files(folder):
        for entry in _tensors(path):
            first, last = entry["data_offsets"]
            size += last - first
            by_dtype[entry["dtype"]] = by_dtype.get(entry["dtype"], 0) + math.prod(entry["shape"])
    most = max(by_dtype, key=lambda name: by_dtype[name], default="")
    return Weights(sum(by_dtype.values()), size, most)


def _files(folder: Path) -> list[Path]:
    """The files of the model's index where it has one, else all. A folder may hold other formats beside them."""
    index = folder / _INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        named = {str(name) for name in json.loads(index.read_text())["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{index} cannot be read: {error!r}") from error
    missing = sorted(name for name in named if not (folder / name).is_file())
    if missing:
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"{folder} lacks {len(missing)} of {len(named)} weight files that its index names, the first is"
            f" {missing[0]}: copy them, or the whole model again",
        )
    return [folder / name for name in sorted(named)]


def _tensors(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(length) if length <= _LONGEST_HEADER else b""
        header = json.loads(text)
        entries = [each for name, each in header.items() if name != "__metadata__"]
        end = max((each["data_offsets"][1] for each in entries), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{path} is no safetensors file: {error!r}") from error
    found, needed = path.stat().st_size, 8 + length + end
    if found != needed:
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"{path} has {found:,} bytes and its header speaks of {needed:,}: it is not whole; copy it again",
        )
    yield from entries
