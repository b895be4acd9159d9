"""Which requests are handed over: as many as the weight says, after any number of them, and not each n-th."""

import random
from collections.abc import Callable

_WHOLE = 100_000_000
"""100 %, in millionths of a percent: counted in whole numbers, so that nothing is lost after any number of requests."""


class Split:
    """After each request, those handed over differ by less than one from the sum of the weights. And each request is
    one of them with just its weight's chance, so that clients who take turns are not sorted by side.

    Chromy's sequential sampling (1979): the number handed over is the sum's whole part, or one ahead of it, with the
    chance that the sum's fraction has.
    """

    def __init__(self, draw: Callable[[int], int] | None = None) -> None:
        """`draw(n)` gives a number from 0 to n - 1."""
        self._draw = draw or random.Random().randrange  # noqa: S311  nobody gains by guessing it
        self._fraction = 0
        self._is_ahead = False

    def takes(self, weight_percent: float) -> bool:
        """Whether the next request is handed over."""
        step = round(weight_percent * _WHOLE / 100)
        before = self._fraction
        if step == 0:
            return False
        if before + step < _WHOLE:
            self._fraction = before + step
            taken = not self._is_ahead and self._draw(_WHOLE - before) < step
            self._is_ahead = self._is_ahead or taken
        else:
            self._fraction = before + step - _WHOLE
            taken = not self._is_ahead or self._draw(before) < self._fraction
            self._is_ahead = self._is_ahead and taken
        return taken
