"""What records of all kinds say alike."""

import hashlib
from typing import Any

from tailhold_api.audit import Recording
from tailhold_server.audit.redact import redact
from tailhold_server.content import Content


def who(caller: Any) -> dict[str, str]:
    """A caller has `client` and `tenant`; None is anonymous."""
    return {
        "client": str(getattr(caller, "client", None) or "anonymous"),
        "tenant": str(getattr(caller, "tenant", None) or ""),
    }


def digests(pod: str, content: Content) -> dict[str, str]:
    """Of all that made what was sent."""
    index = content.index
    return {"pod": pod, "content": content.digest, "snapshot": index.snapshot, "embedder": index.fingerprint}


def sha256(text: str) -> str:
    """Of a text as it was sent."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def kept(text: str, recording: Recording) -> str:
    """What a record of the texts may hold of one: redacted, and without halves of surrogate pairs, which no UTF-8
    has."""
    return redact(text.encode(errors="replace").decode(), recording.redaction)
