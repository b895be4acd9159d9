"""What the surfaces tell: an answer begins, says text, ends. Records are made of it, or nothing where audit is off."""

import asyncio
import hashlib
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tailhold_api.audit import OnFailure, Recording, Records
from tailhold_server.audit.events import Event
from tailhold_server.audit.facts import digests, kept, sha256, who
from tailhold_server.audit.journal import Journal, NotRecordedError
from tailhold_server.audit.record import stamp
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answering
from tailhold_server.question import Question

CALLER = "tailhold.caller"
"""Where the ASGI scope has who asks."""
_WAIT_SECONDS = 10.0
"""A disk that takes longer counts as failed: a mount that hangs must not hang every answer."""


@dataclass(frozen=True)
class Asked:
    """What an answer is asked for with, whatever the surface."""

    question: Question
    surface: str
    """`chat` for `/v1/chat/completions`."""
    caller: Any = None
    """Has `client` and `tenant`; None is anonymous."""
    user: str | None = None
    """Whom the client says that it asks for."""
    streamed: bool = False
    revision: str = ""
    model: str = ""
    """As the client called it."""


class Patience:
    """How long the disk is waited for: one that did not come back in time is not waited for again until it does."""

    def __init__(self, seconds: float = _WAIT_SECONDS) -> None:
        self._seconds = seconds
        self._late: asyncio.Future[None] | None = None

    async def on_disk(self, record: "asyncio.Future[None]", on_failure: OnFailure) -> bool:
        """Whether the disk has it. Raises ServeError where nothing is given without a record."""
        hangs = self._late is not None and not self._late.done()
        try:
            await asyncio.wait_for(asyncio.shield(record), 0 if hangs else self._seconds)
        except TimeoutError:
            self._late = self._late if hangs else record
            return _unwritten(on_failure)
        except NotRecordedError:
            return _unwritten(on_failure)
        return True


def _unwritten(on_failure: OnFailure) -> bool:
    """False, or raises ServeError where nothing is given without a record."""
    if on_failure is OnFailure.REFUSE:
        words = "The audit record cannot be written, so what was asked for is not given. Try again later."
        raise ServeError(Failure.UNAVAILABLE, words, retry_after_seconds=5) from None
    return False


class Trail(Protocol):
    """The records of one answer."""

    async def begun(self) -> None:
        """Returns when the disk knows of the answer: nothing of it may be sent before. Raises ServeError."""

    def said(self, text: str) -> None:
        """The answer gained text."""

    async def ended(self, outcome: str, finish_reason: str | None = None) -> None:
        """Returns when the disk knows how it ended: its last bytes may not be sent before, nor its first where `begun`
        was not waited for. Raises ServeError."""

    def left(self, outcome: str) -> None:
        """It ended and nobody waits; nothing where `ended` was called."""


class Auditor(Protocol):
    """Keeps records, or does not."""

    def opened(self, answering: Answering, asked: Asked) -> Trail:
        """An answer is about to be written."""

    def head(self) -> dict[str, Any]:
        """`sequence` and `hash` of the last record on the disk, for whoever keeps them elsewhere; empty for none."""

    async def happened(self, event: Event, recording: Recording) -> None:
        """Returns when the disk knows of it, at once where it is not to be recorded. Raises ServeError."""

    async def close(self) -> None:
        """Write what waits."""


class NoTrail:
    """Nothing is kept."""

    async def begun(self) -> None:
        """At once."""

    def said(self, text: str) -> None:
        """Not kept."""

    async def ended(self, outcome: str, finish_reason: str | None = None) -> None:
        """At once."""

    def left(self, outcome: str) -> None:
        """Not kept."""


class NoAuditor:
    """Audit is off: no sink is given."""

    _trail = NoTrail()

    def opened(self, answering: Answering, asked: Asked) -> Trail:
        """The one that keeps nothing."""
        return self._trail

    def head(self) -> dict[str, Any]:
        """None."""
        return {}

    async def happened(self, event: Event, recording: Recording) -> None:
        """At once."""

    async def close(self) -> None:
        """Nothing waits."""


class ChainAuditor:
    """Keeps records in the pod's chain."""

    def __init__(self, journal: Journal, pod_digest: str, patience: Patience | None = None) -> None:
        self._journal = journal
        self._pod_digest = pod_digest
        self._patience = patience or Patience()

    def opened(self, answering: Answering, asked: Asked) -> Trail:
        """Its first record is on its way to the disk."""
        return ChainTrail(self._journal, answering, asked, self._pod_digest, self._patience)

    def head(self) -> dict[str, Any]:
        """As it is on the disk."""
        head = self._journal.head
        return {"sequence": head.sequence, "hash": head.hash}

    async def happened(self, event: Event, recording: Recording) -> None:
        """Raises ServeError where the pipeline refuses what it has no record of."""
        if not event.is_wanted(recording):
            return
        at = stamp(time.time())
        record = self._journal.put(lambda: {"kind": event.kind, "time": at, **event.told(self._pod_digest, recording)})
        if not await self._patience.on_disk(record, recording.on_failure):
            self._journal.lose()

    async def close(self) -> None:
        """Off the event loop."""
        await asyncio.to_thread(self._journal.close)


class ChainTrail:
    """Two records: `begun` with what is known before the first byte, `ended` with what is known before the last."""

    def __init__(
        self, journal: Journal, answering: Answering, asked: Asked, pod_digest: str, patience: Patience
    ) -> None:
        self._journal = journal
        self._patience = patience
        self._answer = answering.answer
        self._request_id = answering.prepared.request_id
        self._recording = answering.prepared.content.part.recording
        self._hash = hashlib.sha256()
        self._characters = 0
        self._texts: list[str] | None = [] if self._recording.records is Records.TEXTS else None
        self._is_over = False
        self._is_lost = False
        at = stamp(time.time())
        self._first = journal.put(
            lambda: {"kind": "begun", "time": at, **_begun(answering, asked, pod_digest, self._recording)}
        )

    async def begun(self) -> None:
        """Raises ServeError where the pipeline refuses answers without a record."""
        await self._wait(self._first)

    def said(self, text: str) -> None:
        """Hashed as it comes."""
        self._hash.update(text.encode(errors="replace"))
        self._characters += len(text)
        if self._texts is not None:
            self._texts.append(text)

    async def ended(self, outcome: str, finish_reason: str | None = None) -> None:
        """Raises ServeError where the pipeline refuses answers without a record."""
        self._is_over = True
        ending = self._journal.put(self._ending(outcome, finish_reason))
        await self._wait(self._first)
        await self._wait(ending)

    def left(self, outcome: str) -> None:
        """Nobody is there to wait for."""
        if not self._is_over:
            self._is_over = True
            self._journal.leave(self._ending(outcome, None))

    def _ending(self, outcome: str, finish_reason: str | None) -> Callable[[], dict[str, Any]]:
        at, answer = stamp(time.time()), self._answer
        said = {"sha256": self._hash.hexdigest(), "characters": self._characters}
        usage = {
            "promptTokens": len(answer.prepared.prompt_ids),
            "completionTokens": answer.completion_tokens,
            "cachedTokens": answer.cached_tokens,
        }
        cited = sorted({citation.number for citation in answer.citations})
        ended = {
            "kind": "ended",
            "time": at,
            "request": self._request_id,
            "outcome": outcome,
            "finishReason": finish_reason,
            "answer": said,
            "usage": usage,
            "cited": cited,
        }
        texts = self._texts
        if texts is None:
            return lambda: ended
        return lambda: ended | {"text": kept("".join(texts), self._recording)}

    async def _wait(self, record: "asyncio.Future[None]") -> None:
        if not await self._patience.on_disk(record, self._recording.on_failure) and not self._is_lost:
            self._is_lost = True
            self._journal.lose()


def _begun(answering: Answering, asked: Asked, pod_digest: str, recording: Recording) -> dict[str, Any]:
    """What is known before an answer's first byte. Called in the writer's thread."""
    prepared = answering.prepared
    content, prompt = prepared.content, prepared.prompt_ids
    known: dict[str, Any] = {
        "request": prepared.request_id,
        "surface": asked.surface,
        "streamed": asked.streamed,
        **who(asked.caller),
        "model": asked.model,
        "revision": asked.revision,
        "digests": digests(pod_digest, content),
        "question": {"sha256": sha256(asked.question.text)},
        "prompt": {"tokens": len(prompt), "sha256": hashlib.sha256(array("I", prompt).tobytes()).hexdigest()},
        "chunks": [{"key": source.key, "score": round(source.score, 6)} for source in prepared.sources],
        "dropped": prepared.dropped,
        "truncated": prepared.truncated,
        "sampling": asdict(prepared.sampling),
    }
    if asked.user:
        known["user"] = {"sha256": sha256(asked.user)}
    return known if recording.records is Records.DIGESTS else known | _texts(asked, recording)


def _texts(asked: Asked, recording: Recording) -> dict[str, Any]:
    messages = [{"role": each.role.value, "text": kept(each.text, recording)} for each in asked.question.messages]
    return {"messages": messages} | ({"userName": kept(asked.user, recording)} if asked.user else {})
