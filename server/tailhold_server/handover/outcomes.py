"""What becomes of a request that is handed over."""

from enum import StrEnum


class Outcome(StrEnum):
    """Values of the label `outcome` of `handover_requests_total`."""

    ANSWERED = "answered"
    UNREACHABLE = "unreachable"
    """No connection, or it was reset before a status."""
    REFUSED = "refused"
    """A status of 400 to 499, but for 429."""
    OVERLOADED = "overloaded"
    """429: it has no place."""
    FAILED = "failed"
    """Any other status that is no answer, or an error in the place of the answer."""
    TIMED_OUT = "timed_out"
    """Nothing in time that could be passed on."""
    TRUNCATED = "truncated"
    """It broke off before anything was passed on."""
    BROKEN = "broken"
    """It broke off after its beginning had been passed on: the one failure of a candidate that a client sees."""
    MISDIRECTED = "misdirected"
    """The pod runs on another revision, or takes nothing from us: that says nothing of the candidate."""
    GIVEN_UP = "given_up"
    """The client left, or was turned away for its own limit."""
    AVOIDED = "avoided"
    """Not even tried: each candidate had failed several times in a row just now."""


COUNTS_FOR_NOTHING = (Outcome.GIVEN_UP, Outcome.REFUSED)
"""What says neither that a candidate works nor that it does not: its client may have been wrong."""


class CandidateError(Exception):
    """A candidate gives no answer. Not an error of the request."""

    def __init__(self, outcome: Outcome, words: str) -> None:
        super().__init__(words)
        self.outcome = outcome
        self.words = words
