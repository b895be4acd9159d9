"""Which requests are handed over: as many as the weight says, after any number of them, and not each n-th."""

import random
from collections.abc import Callable

_WHOLE = 100_000_000
"""100 %, in millionths of a percent: counted in whole numbers, so that nothing is lost after any number of requests."""


class Split:
    """After each request, those handed over differ by less than one from the sum of the weights.

    Within that, chance decides: clients whose requests take turns would else send all of one kind to one side.
    """

    def __init__(self, draw: Callable[[int], int] | None = None) -> None:
        """`draw(n)` gives a number from 0 to n - 1."""
        self._draw = draw or random.Random().randrange  # noqa: S311  nobody gains by guessing it
        self._owed = 0

    def takes(self, weight_percent: float) -> bool:
        """Whether the next request is handed over."""
        step = round(weight_percent * _WHOLE / 100)
        if step == 0:
            return False
        owed = self._owed + step
        taken = owed >= _WHOLE or (owed > 0 and self._draw(_WHOLE) < owed)
        self._owed = owed - _WHOLE if taken else owed
        return taken
