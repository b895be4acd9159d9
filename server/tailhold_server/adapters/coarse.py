"""Vectors stored small, for a first look at all of them: int8 on a CPU, half precision on a GPU.

A look is bounded: it says of each vector the highest that its exact score can be. What cannot be among the best by that
is never read in full.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

_UNIT = 2.0**-24
"""Relative error of one float32 operation."""
_SAFE = 1.001
"""The bounds are computed in float32 themselves."""
_LEAST_SCALE = 2.0**-64
"""Of a vector and of a question: shorter ones are all error. So no length that is measured can be too small to square,
and `_LEAST_SLACK` of both is more than a score loses that is too small for float32."""
_LEAST_SLACK = 2.0**-20


@dataclass(frozen=True)
class Asked:
    """Questions as they are multiplied."""

    small: torch.Tensor
    units: torch.Tensor
    """A column: what a score is multiplied with to be one of the question itself."""
    slack: torch.Tensor
    """A column: how far a score may be from the exact one, in units of a vector's scale."""


class Coarse:
    """A vector is `scale` x (what is stored + an error whose length is at most `_error`).

    Products of int8 are exact integers, so a CPU's look depends on neither batch nor threads.
    """

    def __init__(
        self, rows: Iterable[NDArray[np.float32]], count: int, dimension: int, *, kind: torch.dtype, device: str
    ) -> None:
        """`kind` is int8, or float16 where the device multiplies it."""
        self._levels = 127 if kind is torch.int8 else 0
        self.small = torch.zeros((count, dimension), dtype=kind, device=device)
        self.scales = torch.zeros(count, dtype=torch.float32, device=device)
        """What a stored vector is multiplied with."""
        self._error = self._longest = 0.0
        start = 0
        for block in rows:
            self._store(torch.from_numpy(block).to(device), start)
            start += len(block)
        self._rounding = (dimension + 8) * _UNIT

    def __len__(self) -> int:
        return self.small.shape[0]

    def ask(self, questions: torch.Tensor) -> Asked:
        """The questions, a row each, and how far they are to be trusted."""
        units, small = self._shrunk(questions)
        asked = questions / units
        length = torch.linalg.vector_norm(asked, dim=1, keepdim=True)
        # The division above has rounded each number once.
        lost = torch.linalg.vector_norm(asked - small.float(), dim=1, keepdim=True) + _UNIT * length
        slack = self._error * length + self._longest * (lost + self._rounding * length)
        return Asked(small, units, slack * _SAFE + _LEAST_SLACK)

    def highest(self, asked: Asked, start: int, end: int) -> torch.Tensor:
        """Of each question, a row, the highest scores that the vectors from `start` to `end` can have, in its units."""
        products = self._products(asked.small, self.small[start:end].T)
        return products.add_(asked.slack).mul_(self.scales[start:end])

    def _products(self, questions: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        if self._levels and len(columns) == 1:  # `_int_mm` of torch 2.13 is wrong on a CPU for vectors of one number
            return questions.float() * columns.float()
        if self._levels:
            return torch._int_mm(questions, columns).float()
        if questions.is_cuda:
            return torch.mm(questions, columns, out_dtype=torch.float32)
        return questions.float() @ columns.float()

    def _store(self, block: torch.Tensor, start: int) -> None:
        scales, small = self._shrunk(block)
        self.small[start : start + len(block)] = small
        self.scales[start : start + len(block)] = scales.flatten()
        lost = block / scales - small.float()
        longest = torch.linalg.vector_norm(small.float(), dim=1).max()
        error = torch.linalg.vector_norm(lost, dim=1).max() + 4 * _UNIT * longest
        self._error = max(self._error, float(error) * _SAFE)
        self._longest = max(self._longest, float(longest) * _SAFE)

    def _shrunk(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scales = (rows.abs().amax(dim=1, keepdim=True) / (self._levels or 1)).clamp_(min=_LEAST_SCALE)
        small = rows / scales
        return scales, small.round_().to(torch.int8) if self._levels else small.half()
