"""A judgement on one question, before it becomes a condition."""

from dataclasses import dataclass

from tailhold_api.conditions import Reason


@dataclass(frozen=True)
class Finding:
    """Yes or no, why, and whether only the user can change it."""

    holds: bool
    reason: Reason
    message: str = ""
    stalled: bool = False
    """Waiting will not help: somebody has to change something."""


FINE = Finding(True, Reason.RECONCILED)


def waiting(reason: Reason, message: str = "") -> Finding:
    """Not yet, and nobody has to do anything."""
    return Finding(False, reason, message)


def stuck(reason: Reason, message: str = "") -> Finding:
    """Not, until somebody changes something."""
    return Finding(False, reason, message, stalled=True)


def reason_of(word: str, otherwise: Reason) -> Reason:
    """The reason that a container wrote, where it is one of ours."""
    return Reason(word) if word in Reason.__members__.values() else otherwise
