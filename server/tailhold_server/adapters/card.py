"""Memory of the GPU that this process searches on."""

import torch


def free_card_bytes() -> int:
    """What any process may still take of it; what torch holds and does not use counts as free."""
    free: int = torch.cuda.mem_get_info()[0]
    return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
