"""A judgement on one question, before it becomes a condition."""

import re
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


_NO_CLAIM = re.compile('persistentvolumeclaim "[^"]*" not found')
_CLAIMS = (
    "make the claim in the pipeline's namespace, or correct the field that names it: `index.store.claimName`, or"
    " `pvc.claimName` of `generator.model`, `embedder.model`, `corpus.sources`, `corpus.uploads`,"
    " `pod.volumes` or `audit.sink`"
)
FINE = Finding(True, Reason.RECONCILED)


def waiting(reason: Reason, message: str = "") -> Finding:
    """Not yet, and nobody has to do anything."""
    return Finding(False, reason, message)


def stuck(reason: Reason, message: str = "") -> Finding:
    """Not, until somebody changes something."""
    return Finding(False, reason, message, stalled=True)


def advised(words: str) -> str:
    """What a scheduler or kubelet says, with the next step where it names a claim that is not there."""
    return f"{words}; {_CLAIMS}" if _NO_CLAIM.search(words) else words


def reason_of(word: str, otherwise: Reason) -> Reason:
    """The reason that a container wrote, where it is one of ours."""
    return Reason(word) if word in Reason.__members__.values() else otherwise
