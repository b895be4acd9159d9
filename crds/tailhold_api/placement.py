"""Where a pod runs and what it owns there."""

from typing import ClassVar

from tailhold_api.affinity import Affinity
from tailhold_api.fields import Model, Rule, part, restart
from tailhold_api.grammar import LABEL_KEY, LABEL_VALUE, NAME, LabelValue, legal_keys

LABEL_PRODUCT = "nvidia.com/gpu.product"
"""What NVIDIA's feature discovery says of a node."""


class Gpu(Model):
    """The pod's GPUs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.count > 0 || (!has(self.product) && !has(self.memoryMebibytes))",
            "`product` and `memoryMebibytes` may not be given when `count` is 0: there is no GPU; take them away",
            {"count": 1, "product": "NVIDIA-H200"},
            {"count": 0, "product": "NVIDIA-H200"},
        ),
    )

    count: int = restart(1, ge=0, le=16)
    """GPUs of one pod. 0 serves on the CPU, with the CPU build of the server's image."""
    resource_name: str = restart("nvidia.com/gpu", max_length=253, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")
    """The device plugin's resource, used once in requests and limits: `nvidia.com/gpu`, `nvidia.com/mig-3g.20gb`,
    `amd.com/gpu`."""
    product: str | None = restart(None, max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    """The kind of card, as NVIDIA's feature discovery labels nodes with `nvidia.com/gpu.product`: `NVIDIA-H200`. Pods
    then run on nodes of this label alone. Memory and compute capability of the usual cards are known by it, so that
    what cannot fit or run is refused before a pod starts."""
    memory_mebibytes: int | None = restart(None, ge=256, le=4194304)
    """Memory of one GPU, as `nvidia-smi` shows it. With it, or a known `product`, weights, KV cache and all else have
    to add up to no more; without both the sum is shown and not judged. Chooses no node: use `product` or
    `placement.nodeSelector` for that."""


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

    @property
    def requested_millicores(self) -> int:
        """What a pod asks the scheduler for. One that shares its cores asks for a thousandth less than all of them: a
        pod whose requests equal its limits would be pinned against its will."""
        if self.exclusive:
            return self.cores * 1000
        return min(self.request_millicores or self.cores * 1000, self.cores * 1000 - 1)


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
    """Size of /dev/shm, counted within `memoryMebibytes`. The engine's processes talk through it. What
    `engine.kvOffloadMebibytes` asks for is added to it: vLLM keeps those blocks there."""
    cache_mebibytes: int = restart(8192, ge=128, le=1048576)
    """Size limit of the volume for HOME and all caches: the root file system is read-only."""
    node_selector: dict[str, LabelValue] = restart({}, max_length=32)
    """Labels that the node must have."""
    tolerations: tuple[Toleration, ...] = restart((), max_length=32)
    """Taints that the pod accepts, beside `nvidia.com/gpu`, which GPU pods always accept."""
    affinity: Affinity | None = restart(None)
    """Nodes and neighbours where `nodeSelector` and `pod.spread` cannot say it. Not for index Jobs, and without the
    neighbours for inspection Jobs."""
    runtime_class_name: str | None = restart(None, **NAME)
    """RuntimeClass of the pod; unset by default, `nvidia` on clusters that need it."""

    @property
    def node_labels(self) -> dict[str, str]:
        """All labels that a node must have, that of the GPU's product among them."""
        return dict(self.node_selector) | ({LABEL_PRODUCT: self.gpu.product} if self.gpu.product else {})
