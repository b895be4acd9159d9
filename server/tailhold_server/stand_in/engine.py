"""An engine that answers at a stated pace, fails when it is told to, and queues what has no slot."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from tailhold_api.stand_in import StandIn, told
from tailhold_server.errors import EngineDiedError, Failure, ServeError
from tailhold_server.ports import Sampling
from tailhold_server.rates import Meter
from tailhold_server.testing import Pace, StandInEngine, StandInTokenizer

WIDTH = 3
"""Bytes of a token, so that a prompt has about as many as with a model's tokenizer."""
_FILLER = "No model wrote this, a stand-in did: it goes on for as many tokens as it was told to. "


def drawn(behaviour: StandIn, draw: Callable[[], float]) -> Pace | None:
    """The next answer's pace, None for one that fails. `draw` gives numbers from 0 up to 1, each as likely."""
    if 100 * draw() < behaviour.fail_percent:
        return None
    scale = behaviour.times * (1 + behaviour.jitter_percent / 100 * (2 * draw() - 1))
    if 100 * draw() < behaviour.slow_percent:
        scale *= behaviour.slow_times
    return Pace(scale * behaviour.first_token_milliseconds / 1000, scale * behaviour.token_milliseconds / 1000)


def mean_pace(behaviour: StandIn) -> Pace:
    """Over many answers."""
    scale = behaviour.times * (1 + behaviour.slow_percent / 100 * (behaviour.slow_times - 1))
    return Pace(scale * behaviour.first_token_milliseconds / 1000, scale * behaviour.token_milliseconds / 1000)


class PacedEngine(StandInEngine):
    """Behaves as it is told, anew with each request: what is told may change while it runs."""

    def __init__(
        self,
        stated: StandIn,
        *,
        most_running: int,
        behaviour: Callable[[], StandIn] | None = None,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`stated` is what the manifest says, `behaviour` what holds now."""
        self.slots = min(stated.slots, most_running)
        super().__init__(
            running_limit=self.slots,
            start_seconds=stated.start_seconds,
            start_error="the stand-in engine was told to fail its start (`startFails`)" if stated.start_fails else "",
            tokenizer=StandInTokenizer(WIDTH),
            clock=clock,
        )
        self._stated = stated
        self._behaviour = behaviour or (lambda: stated)
        self._draw = draw
        self._taken = 0

    async def start(self) -> None:
        """As the manifest says, or never."""
        if self._stated.never_ready:
            await asyncio.Event().wait()
        await super().start()

    def description(self) -> dict[str, object]:
        """What it is, what it was told, and what holds now where that is something else."""
        now = self._behaviour()
        said: dict[str, object] = {"name": "stand-in", "behaviour": told(self._stated), "slots": self.slots}
        return said | ({"faults": told(now)} if now != self._stated else {})

    def teach(self, meter: Meter, prompt_tokens: int) -> None:
        """Its rates are known without measuring; answers are measured like any engine's from then on."""
        pace, full = mean_pace(self._stated), 1 << (self.slots - 1).bit_length()
        if pace.first:
            meter.prefill.add(prompt_tokens / pace.first)
        if pace.gap:
            meter.measured(1, 1 / pace.gap)
            meter.measured(full, full / pace.gap)

    def _pace(self) -> Pace:
        self._taken += 1
        if self._stated.dies_after and self._taken > self._stated.dies_after:
            self.kill()
            raise EngineDiedError(f"the stand-in was told to die after {self._stated.dies_after} requests")
        pace = drawn(self._behaviour(), self._draw)
        if pace is None and self._taken == 1:  # a revision that fails its first question never serves to be judged
            return mean_pace(self._behaviour())
        if pace is None:
            raise ServeError(Failure.INTERNAL, "The stand-in engine was told to fail this request (`failPercent`).")
        return pace

    def _words(self, prompt_ids: Sequence[int], sampling: Sampling) -> list[str]:
        """The question again, and filler up to the length that is told."""
        words, length = super()._words(prompt_ids, sampling), self._stated.answer_tokens
        if not length:
            return words
        filler = [f"{word} " for word in _FILLER.split()]
        missing = max(0, length - len(words))
        return [*_ended(words, missing), *(filler * (missing // len(filler) + 1))[:missing]][:length]


def _ended(words: list[str], missing: int) -> list[str]:
    """A blank before what follows."""
    return [*words[:-1], f"{words[-1].rstrip()} "] if missing else words
