"""Vectors like those of texts: many subjects, some near each other."""

import numpy as np
from numpy.typing import NDArray


def clustered(
    count: int, dimension: int, *, subjects: int = 100, spread: float = 0.6, seed: int = 0
) -> NDArray[np.float32]:
    """Each is one of the subjects with noise of `spread` times its length."""
    random = np.random.default_rng(seed)
    middles = random.normal(size=(subjects, dimension))
    noise = random.normal(size=(count, dimension)) * spread
    return np.asarray(middles[random.integers(0, subjects, count)] + noise, dtype=np.float32)
