"""The control of a node's stand-in GPUs: a small file that the device plugin watches.

Each GPU is `healthy`, `unhealthy` (the kubelet is told that it failed) or `absent` (it is no longer listed).
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Health(StrEnum):
    """How a stand-in GPU is."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    ABSENT = "absent"


@dataclass(frozen=True)
class Gpu:
    """One stand-in GPU."""

    id: str
    numa: int
    health: Health = Health.HEALTHY


def named(numa: tuple[int, ...]) -> tuple[Gpu, ...]:
    """GPUs `gpu-0`, `gpu-1`, ... on the given NUMA nodes."""
    return tuple(Gpu(f"gpu-{index}", node) for index, node in enumerate(numa))


def encode(gpus: tuple[Gpu, ...]) -> str:
    """The text of a control file."""
    return json.dumps({gpu.id: {"numa": gpu.numa, "health": gpu.health} for gpu in gpus}, indent=2) + "\n"


def decode(text: str) -> tuple[Gpu, ...]:
    """The GPUs in the text of a control file."""
    return tuple(Gpu(key, entry["numa"], Health(entry["health"])) for key, entry in json.loads(text).items())


@dataclass(frozen=True)
class GpuControl:
    """Makes the GPUs of one node fail, vanish and come back; the kubelet hears of it within half a second."""

    file: Path

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, absent ones too."""
        return decode(self.file.read_text())

    def fail(self, *ids: str) -> None:
        """Report the GPUs as unhealthy; all of them if none is named."""
        self._set(ids, Health.UNHEALTHY)

    def vanish(self, *ids: str) -> None:
        """Stop listing the GPUs; all of them if none is named."""
        self._set(ids, Health.ABSENT)

    def restore(self, *ids: str) -> None:
        """Bring the GPUs back, healthy; all of them if none is named."""
        self._set(ids, Health.HEALTHY)

    def _set(self, ids: tuple[str, ...], health: Health) -> None:
        gpus = self.gpus()
        unknown = set(ids) - {gpu.id for gpu in gpus}
        if unknown:
            raise KeyError(f"no such GPU: {', '.join(sorted(unknown))}")
        changed = tuple(Gpu(gpu.id, gpu.numa, health) if not ids or gpu.id in ids else gpu for gpu in gpus)
        fresh = self.file.with_suffix(".new")
        fresh.write_text(encode(changed))
        fresh.rename(self.file)
