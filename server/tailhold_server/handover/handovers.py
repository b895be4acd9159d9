"""What is handed over just now: told by the operator, and over 10 seconds after it said so last."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tailhold_api.handover import EXPIRES_SECONDS, Handover
from tailhold_server.handover.carrier import Carrier
from tailhold_server.handover.outcomes import COUNTS_FOR_NOTHING, Outcome
from tailhold_server.handover.peers import Peer, Peers
from tailhold_server.handover.split import Split


@dataclass(eq=False)
class Turn:
    """A request's candidate, as a context while it is in flight. What became of it is set before it is left."""

    handover: Handover
    peer: Peer
    _handovers: "Handovers"
    outcome: Outcome = field(default=Outcome.GIVEN_UP)

    def __enter__(self) -> Self:
        self._handovers.began(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._handovers.ended(self)


class Handovers:
    """Those of one server. Event loop only."""

    def __init__(
        self,
        count: Callable[[Outcome], None],
        carrier: Carrier,
        clock: Callable[[], float] = time.monotonic,
        split: Split | None = None,
    ) -> None:
        self.carrier = carrier
        self.in_flight = 0
        """Requests that candidates are answering for us."""
        self._count = count
        self._clock = clock
        self._split = split or Split()
        self._peers = Peers()
        self._told: Handover | None = None
        self._until = 0.0

    def put(self, handover: Handover) -> None:
        """Holds from now on, in place of what held before."""
        self._told = None if handover.is_over else handover
        self._until = self._clock() + EXPIRES_SECONDS
        self._peers.keep(handover.candidates)

    @property
    def in_force(self) -> Handover | None:
        """None where nothing is handed over."""
        return self._told if self._told is not None and self._clock() < self._until else None

    def turn(self) -> Turn | None:
        """The candidate of the next request, where it is to have one."""
        handover = self.in_force
        if handover is None or not self._split.takes(handover.weight_percent):
            return None
        peer = self._peers.choose(self._clock())
        if peer is None:
            self._count(Outcome.AVOIDED)
            return None
        return Turn(handover, peer, self)

    def began(self, turn: Turn) -> None:
        """A request is on its way."""
        self.in_flight += 1
        turn.peer.in_flight += 1

    def ended(self, turn: Turn) -> None:
        """It came back, or will not."""
        self.in_flight -= 1
        turn.peer.in_flight -= 1
        self._count(turn.outcome)
        if turn.outcome is Outcome.ANSWERED:
            turn.peer.succeeded()
        elif turn.outcome not in COUNTS_FOR_NOTHING:
            turn.peer.failed(self._clock())

    def body(self) -> dict[str, Any] | None:
        """What is in force, as `/v1/tuning` shows it: without the token."""
        told = self.in_force
        if told is None:
            return None
        seen = told.model_dump(mode="json", by_alias=True, exclude={"token"})
        return seen | {"expiresInSeconds": round(self._until - self._clock(), 3)}
