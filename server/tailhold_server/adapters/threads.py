"""torch's threads in this process."""

import torch


def limit_threads(count: int) -> None:
    """Of all threads that begin to compute later. More of them than cores would wait for the engine's."""
    torch.set_num_threads(count)
