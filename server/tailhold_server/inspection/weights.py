"""The headers of safetensors files: what the tensors are, and whether the files are whole."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
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


Read = Callable[[int, int], bytes]
"""Bytes of a file, from one place up to another."""


class Stored(NamedTuple):
    """A safetensors file, wherever it is."""

    title: str
    size: int
    read: Read


def read_weights(folder: Path) -> Weights:
    """From the headers alone, in milliseconds for any size. Raises StartError naming a file that is not whole."""
    names = [each.name for each in folder.glob("*.safetensors")]
    return weights_of([_local(folder / name) for name in indexed(folder, names)])


def weights_of(files: Iterable[Stored]) -> Weights:
    """The same of files anywhere: only their headers are read. Raises StartError."""
    by_dtype: dict[str, int] = {}
    size = 0
    for file in files:
        for entry in _tensors(file):
            first, last = entry["data_offsets"]
            size += last - first
            by_dtype[entry["dtype"]] = by_dtype.get(entry["dtype"], 0) + math.prod(entry["shape"])
    most = max(by_dtype, key=lambda name: by_dtype[name], default="")
    return Weights(sum(by_dtype.values()), size, most)


def indexed(folder: Path, there: Iterable[str]) -> list[str]:
    """Of the files that are there those of the model's index, where the folder has one. A model may have other formats
    beside them. Raises StartError where one of the index is not there."""
    index, found = folder / _INDEX, sorted(there)
    if not index.is_file():
        return found
    try:
        named = {str(name) for name in json.loads(index.read_text())["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{index} cannot be read: {error!r}") from error
    missing = sorted(named - set(found))
    if missing:
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"{folder} lacks {len(missing)} of {len(named)} weight files that its index names, the first is"
            f" {missing[0]}: copy them, or the whole model again",
        )
    return sorted(named)


def _local(path: Path) -> Stored:
    def read(start: int, end: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    return Stored(str(path), path.stat().st_size, read)


def _tensors(file: Stored) -> Iterator[dict[str, Any]]:
    try:
        length = int.from_bytes(file.read(0, min(8, file.size)), "little")
        text = file.read(8, 8 + length) if length <= min(_LONGEST_HEADER, file.size - 8) else b""
        header = json.loads(text)
        entries = [each for name, each in header.items() if name != "__metadata__"]
        end = max((each["data_offsets"][1] for each in entries), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StartError(Reason.MODEL_NOT_FOUND, f"{file.title} is no safetensors file: {error!r}") from error
    found, needed = file.size, 8 + length + end
    if found != needed:
        raise StartError(
            Reason.MODEL_NOT_FOUND,
            f"{file.title} has {found:,} bytes and its header speaks of {needed:,}: it is not whole; copy it again",
        )
    yield from entries
