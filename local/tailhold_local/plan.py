"""What a cluster was asked to be, and what its supervisor runs: plain values, kept as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tailhold_local.addresses import SLOTS
from tailhold_local.errors import LocalError


@dataclass(frozen=True)
class Settings:
    """What a cluster was asked to be."""

    slot: int
    nodes: int = 1
    gpus: int = 0
    """Stand-in GPUs on each node."""
    gpu_numa: tuple[int, ...] = (0,)
    """The NUMA nodes the GPUs sit on, taken in turn."""

    def __post_init__(self) -> None:
        if self.slot not in SLOTS:
            raise LocalError(f"slot {self.slot}: use one from 0 to {SLOTS.stop - 1}, or leave --slot out")
        if self.nodes not in (1, 2):
            raise LocalError(f"{self.nodes} nodes: one machine carries 1 or 2")
        if not 0 <= self.gpus <= 64:
            raise LocalError(f"{self.gpus} GPUs: use 0 to 64")

    @property
    def letters(self) -> tuple[str, ...]:
        """The nodes, by letter."""
        return tuple("ab"[: self.nodes])

    def numa_of_gpus(self) -> tuple[int, ...]:
        """The NUMA node of each GPU."""
        return tuple(self.gpu_numa[index % len(self.gpu_numa)] for index in range(self.gpus))

    def to_json(self) -> str:
        """What `from_json` reads."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "Settings":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return Settings(**{**fields, "gpu_numa": tuple(fields["gpu_numa"])})


@dataclass(frozen=True)
class Component:
    """A program that the supervisor keeps running; its log is named after it."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What the supervisor does: first the setup commands in order, then all components at once."""

    cgroup: str
    logs: Path
    setup: tuple[tuple[str, ...], ...]
    components: tuple[Component, ...]

    def to_json(self) -> str:
        """What `from_json` reads."""
        return json.dumps({**asdict(self), "logs": str(self.logs)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        components = tuple(_component(entry) for entry in fields["components"])
        setup = tuple(tuple(command) for command in fields["setup"])
        return Plan(fields["cgroup"], Path(fields["logs"]), setup, components)


def _component(fields: dict[str, Any]) -> Component:
    environment = tuple((key, value) for key, value in fields["environment"])
    return Component(fields["name"], tuple(fields["command"]), environment)
