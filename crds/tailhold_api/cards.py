"""What is known of a GPU from how a spec names it."""

import re
from typing import NamedTuple

from tailhold_api.placement import Gpu

_MIG = re.compile(r"\bmig-\d+g\.(\d+)gb", re.IGNORECASE)
_MIG_SHARE = 0.95
"""A slice has a little less than its name says: 19,968 MiB of a `3g.20gb`, 9,728 of a `1g.10gb`."""


class Card(NamedTuple):
    """A kind of GPU; None is not known."""

    memory_mebibytes: int | None
    """As `nvidia-smi` reports it."""
    capability: tuple[int, int] | None
    """NVIDIA's compute capability."""


UNKNOWN = Card(None, None)
_CARDS = {
    "NVIDIA-B200": Card(183359, (10, 0)),
    "NVIDIA-H200": Card(143771, (9, 0)),
    "NVIDIA-H100-NVL": Card(95830, (9, 0)),
    "NVIDIA-H100": Card(81559, (9, 0)),
    "NVIDIA-L40S": Card(46068, (8, 9)),
    "NVIDIA-L40": Card(46068, (8, 9)),
    "NVIDIA-L4": Card(23034, (8, 9)),
    "NVIDIA-A100-SXM4-40GB": Card(40960, (8, 0)),
    "NVIDIA-A100-PCIE-40GB": Card(40960, (8, 0)),
    "NVIDIA-A100": Card(81920, (8, 0)),
    "NVIDIA-A40": Card(46068, (8, 6)),
    "NVIDIA-A30": Card(24576, (8, 0)),
    "NVIDIA-A10": Card(23028, (8, 6)),
    "Tesla-V100": Card(None, (7, 0)),
    "Tesla-T4": Card(15360, (7, 5)),
}
"""By the beginning of the label `nvidia.com/gpu.product`, the longer ones first where one begins another."""


def card_of(gpu: Gpu) -> Card:
    """The card behind a spec's words. What the spec says of the memory holds over what the name tells."""
    known = next((card for name, card in _CARDS.items() if (gpu.product or "").startswith(name)), UNKNOWN)
    slice_ = _MIG.search(f"{gpu.resource_name} {gpu.product or ''}")
    memory = int(int(slice_.group(1)) * 1024 * _MIG_SHARE) if slice_ else known.memory_mebibytes
    return Card(gpu.memory_mebibytes or memory, known.capability)
