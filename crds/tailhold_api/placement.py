"""Where a pod runs and what it owns there."""

from typing import ClassVar

from tailhold_api.affinity import Affinity
from tailhold_api.fields import Model, Rule, part, restart
from tailhold_api.grammar import LABEL_KEY, LABEL_VALUE, NAME, LabelValue, legal_keys


class Gpu(Model):
    """The pod's GPUs."""

    count: int = restart(1, ge=0, le=16)
    """GPUs of one pod. 0 serves on the CPU, with the CPU build of the server's image."""
    resource_name: str = restart("nvidia.com/gpu", max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")
    """The device plugin's resource, used once in requests and limits: `nvidia.com/gpu`, `nvidia.com/mig-3g.20gb`,
    `amd.com/gpu`."""


class Cpu(Model):
    """The pod's cores."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!self.exclusive || !has(self.requestMillicores)",
            "`requestMillicores` may not be given when `exclusive` is true: pinned pods request all their cores",
            {"cores": 2, "exclusive": False, "requestMillicores": 500},
            {"cores": 2, "exclusive": True, "requestMillicores": 500},
        ),
    )

    cores: int = restart(1, ge=1, le=512)
    """Whole cores: the limit, and the size of the thread pools."""
    exclusive: bool = restart(True)
    """Own the cores alone. The pod is then Guaranteed, and kubelet's static CPU policy pins it. On nodes with
    hyper-threads and `full-pcpus-only`, `cores` has to be even."""
    request_millicores: int | None = restart(None, ge=10, le=512000)
    """What a pod that shares its cores asks the scheduler for; all of `cores` where it is not given."""


class Toleration(Model):
    """A taint that the pod accepts."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.operator == 'Equal' ? has(self.key) : !has(self.value)",
            "`key` must be given with `Equal`, and `value` may not be given with `Exists`",
            {"key": "dedicated", "value": "team-a"},
            {"key": "dedicated", "value": "team-a", "operator": "Exists"},
        ),
    )

    key: str | None = restart(None, **LABEL_KEY)
    """The taint's key; with `Exists`, all taints where it is not given."""
    operator: str = restart("Equal", pattern=r"^(Equal|Exists)$")
    """`Equal` compares the value, `Exists` takes any."""
    value: str | None = restart(None, **LABEL_VALUE)
    """The taint's value, with `Equal`."""
    effect: str | None = restart(None, pattern=r"^(NoSchedule|PreferNoSchedule|NoExecute)$")
    """The taint's effect; all effects where it is not given."""


class Placement(Model):
    """Where a pod runs. A change makes new pods."""

    rules: ClassVar[tuple[Rule, ...]] = (legal_keys("nodeSelector"),)

    gpu: Gpu = part(Gpu)
    """GPUs."""
    cpu: Cpu = part(Cpu)
    """Cores."""
    memory_mebibytes: int = restart(8192, ge=512, le=16777216)
    """Request and limit of the pod's memory: weights on the host, index on the CPU, shared memory and caches in it."""
    shared_memory_mebibytes: int = restart(1024, ge=64, le=1048576)
    """Size of /dev/shm, counted within `memoryMebibytes`. The engine's processes talk through it."""
    cache_mebibytes: int = restart(8192, ge=128, le=1048576)
    """Size limit of the volume for HOME and all caches: the root file system is read-only."""
    node_selector: dict[str, LabelValue] = restart({}, max_length=32)
    """Labels that the node must have."""
    tolerations: tuple[Toleration, ...] = restart((), max_length=32)
    """Taints that the pod accepts, beside `nvidia.com/gpu`, which GPU pods always accept."""
    affinity: Affinity | None = restart(None)
    """Nodes and neighbours where `nodeSelector` and `pod.spread` cannot say it. Not for index Jobs."""
    runtime_class_name: str | None = restart(None, **NAME)
    """RuntimeClass of the pod; unset by default, `nvidia` on clusters that need it."""
