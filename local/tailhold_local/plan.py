"""What a cluster was asked to be, and what its supervisor runs: plain values, kept as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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

    def described(self) -> str:
        """The same for a person."""
        gpus = f"{self.gpus} GPUs on NUMA nodes {', '.join(map(str, self.gpu_numa))}" if self.gpus else "no GPUs"
        return f"{self.nodes} node{'s'[: self.nodes - 1]}, {gpus} and slot {self.slot}"

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


@dataclass(frozen=True)
class Holder:
    """A program that makes a mount namespace, prints a line once it is made, and keeps it alive."""

    handle: Path
    """Where others find the namespace."""
    command: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What the supervisor does: it makes the mount namespaces, then starts all components at once."""

    cgroup: str
    logs: Path
    holders: tuple[Holder, ...]
    components: tuple[Component, ...]

    def to_json(self) -> str:
        """What `from_json` reads."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    @staticmethod
    def from_json(text: str) -> "Plan":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        components = tuple(Component(each["name"], tuple(each["command"])) for each in fields["components"])
        holders = [Holder(Path(each["handle"]), tuple(each["command"])) for each in fields["holders"]]
        return Plan(fields["cgroup"], Path(fields["logs"]), tuple(holders), components)
