"""What a load is sent to."""

from collections.abc import Callable
from typing import Protocol

from tailhold_bench.load.questions import Asked
from tailhold_bench.load.samples import Sample

Clock = Callable[[], float]


class Target(Protocol):
    """A server under load. One for each process, on its event loop."""

    async def ask(self, asked: Asked, sample: Sample, clock: Clock) -> None:
        """Ask once and write down what comes, with the times it comes at; nothing is asked a second time.

        What the server does wrong becomes the sample's outcome and is not raised. When this is cancelled the request
        is given up, and what was known until then stands in the sample.
        """

    async def close(self) -> None:
        """End all connections."""


class TargetSettings(Protocol):
    """How to reach a target; goes to the processes that do."""

    def open(self) -> Target:
        """A target of its own for the calling process."""
