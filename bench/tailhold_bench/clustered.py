"""Made-up vectors like those of texts: subjects in a space of few dimensions, turned into one of many, with noise."""

import numpy as np
from numpy.typing import NDArray

_LATENT = 48
_NOISE = 0.15
_SPREAD = 0.7
_BLOCK = 1 << 16


def vectors(count: int, dimension: int, *, subjects: int, seed: int) -> NDArray[np.float32]:
    """`count` points around `subjects` middles. Another seed draws other points around the same middles."""
    fixed, random = np.random.default_rng(7), np.random.default_rng(seed)
    middles = fixed.normal(size=(subjects, _LATENT))
    turned = fixed.normal(size=(_LATENT, dimension)).astype(np.float32) / np.sqrt(_LATENT)
    made = np.empty((count, dimension), dtype=np.float32)
    for start in range(0, count, _BLOCK):
        block = made[start : start + _BLOCK]
        latent = middles[random.integers(0, subjects, len(block))]
        latent = latent + _SPREAD * random.normal(size=latent.shape)
        np.matmul(latent.astype(np.float32), turned, out=block)
        block += _NOISE * random.standard_normal(block.shape, dtype=np.float32)
    return made
