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
    unknown: bool = False
    """Neither yes nor no."""

    @property
    def status(self) -> str:
        """As a condition says it."""
        if self.unknown:
            return "Unknown"
        return "True" if self.holds else "False"


_NO_CLAIM = re.compile('persistentvolumeclaim "[^"]*" not found')
_CLAIMS = (
    "make the claim in the pipeline's namespace, or correct the field that names it: `index.store.claimName`,"
    " `server.cache.claimName`, or `pvc.claimName` of `generator.model`, `embedder.model`, `corpus.sources`,"
    " `corpus.uploads`, `index.snapshot.source`, `audit.sink` or `pod.volumes`"
)
_NO_SECRET = re.compile('secret "[^"]*" not found')
_SECRETS = (
    "make the Secret in the pipeline's namespace, or correct the field that names it: `secretName` of"
    " `server.auth.apiKeys` or `server.tls`, `server.tls.clientCaSecretName`, or one of `pod.volumes`, `pod.env` and"
    " `pod.envFrom`; the pods then start by themselves"
)
FINE = Finding(True, Reason.RECONCILED)


def waiting(reason: Reason, message: str = "") -> Finding:
    """Not yet, and nobody has to do anything."""
    return Finding(False, reason, message)


def stuck(reason: Reason, message: str = "") -> Finding:
    """Not, until somebody changes something."""
    return Finding(False, reason, message, stalled=True)


def advised(words: str) -> str:
    """What a scheduler or kubelet says, with the next step where it names a claim or Secret that is not there."""
    steps = ((_NO_CLAIM, _CLAIMS), (_NO_SECRET, _SECRETS))
    return "; ".join((words, *(step for missing, step in steps if missing.search(words))))


def reason_of(word: str, otherwise: Reason) -> Reason:
    """The reason that a container wrote, where it is one of ours."""
    return Reason(word) if word in Reason.__members__.values() else otherwise
