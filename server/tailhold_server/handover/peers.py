"""The candidates as this pod knows them: what is in flight to each, and which one is left alone for a moment."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailhold_api.handover import Candidate

FAILURES = 5
"""After so many in a row a candidate gets one request a second, until one succeeds."""
SHUT_SECONDS = 1.0


@dataclass(eq=False)
class Peer:
    """A candidate. Time is an argument."""

    candidate: Candidate
    in_flight: int = 0
    failures: int = 0
    """In a row."""
    shut_until: float = 0.0
    used: int = 0
    """Which use of any candidate was its last."""

    def is_open(self, now: float) -> bool:
        """Whether it gets requests."""
        return self.failures < FAILURES or now >= self.shut_until

    def failed(self, now: float) -> None:
        """One more."""
        self.failures += 1
        self.shut_until = now + SHUT_SECONDS

    def succeeded(self) -> None:
        """It answers again."""
        self.failures = 0


class Peers:
    """Those of the handover in force. Those that stay in it keep what is known of them."""

    def __init__(self) -> None:
        self._peers: dict[Candidate, Peer] = {}
        self._uses = 0

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """These and no others. What is in flight to another one goes on."""
        self._peers = {each: self._peers.get(each) or Peer(each) for each in candidates}

    def choose(self, now: float) -> Peer | None:
        """The one with the fewest in flight, of equal ones that which waited longest; None where all are left alone."""
        found = [each for each in self._peers.values() if each.is_open(now)]
        if not found:
            return None
        chosen = min(found, key=lambda each: (each.in_flight, each.used))
        self._uses += 1
        chosen.used = self._uses
        if chosen.failures >= FAILURES:  # a try: the next one is a second away
            chosen.shut_until = now + SHUT_SECONDS
        return chosen
