"""One question that a candidate is to answer. Until there is something of the answer nothing reaches the client, and
whatever goes wrong before has the pod answer itself."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from starlette.types import Send

from tailhold_server import sse
from tailhold_server.asking import Asking
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handover.carrier import Carrier, Reply
from tailhold_server.handover.events import News, cut, news
from tailhold_server.handover.handovers import Turn
from tailhold_server.handover.listening import Listening
from tailhold_server.handover.outcomes import CandidateError, Outcome
from tailhold_server.handover.told import HEARTBEAT, TRAILER, Told, read_told
from tailhold_server.handover.wire import REFUSED, TOLD, Sent, answer_headers, one_of, request_headers
from tailhold_server.routes.envelope import envelope
from tailhold_server.stages import Marks

_MOST_BYTES = 64 << 20
"""Of an answer that is not streamed, or of one event: it waits in memory."""


@dataclass
class Passing:
    """One try, at one candidate."""

    asking: Asking
    turn: Turn
    sent: Sent
    send: Send
    is_streamed: bool
    silence_seconds: float
    """A candidate that gives no sign for so long is gone."""
    _is_begun: bool = field(default=False, init=False)

    async def run(self, carrier: Carrier) -> bool:
        """Whether the client has a candidate's answer, or what there was of it; False where nothing was sent.

        Raises ServeError where the client is turned away.
        """
        marks = self.asking.give(self.turn.handover.revision)
        with self.turn:
            try:
                await self._carry(carrier, marks)
            except CandidateError as error:
                self.turn.outcome = Outcome.BROKEN if self._is_begun else error.outcome
                if not self._is_begun:
                    self.asking.take_back(error.outcome)
                    return False
                await self._break_off(error)
            else:
                self.turn.outcome = Outcome.ANSWERED
        return True

    async def _carry(self, carrier: Carrier, marks: Marks) -> None:
        handover, asking = self.turn.handover, self.asking
        patience = handover.patience_milliseconds / 1000
        given = (handover.token, asking.request_id, handover.revision, asking.trace_headers)
        headers, silence = request_headers(self.sent, *given), max(patience, self.silence_seconds)
        began = time.monotonic()
        try:
            async with (
                asyncio.timeout(patience) as deadline,
                carrier.carried(self.turn.peer.candidate, self.sent, headers, silence) as reply,
            ):
                told = _accepted(reply)
                marks.found = _at(began, told.found)
                if self.is_streamed:
                    await self._stream(reply, told, marks, deadline)
                else:
                    await self._whole(reply, marks, began, deadline)
        except TimeoutError as error:
            raise CandidateError(Outcome.TIMED_OUT, f"nothing to pass on within {patience:g} s") from error

    async def _whole(self, reply: Reply, marks: Marks, began: float, deadline: asyncio.Timeout) -> None:
        """All of it is there before any of it is sent."""
        deadline.reschedule(None)  # it is worked on, and gives signs
        answer, line, ending = (await _read(reply)).rpartition(b"\n" + TRAILER)
        told = _ended(line.lstrip() + ending)
        marks.found, marks.first_token, marks.longest_gap = _at(began, told.found), _at(began, told.first), told.gap
        marks.finished = time.monotonic()
        body = answer.lstrip(HEARTBEAT)
        self.asking.spend(told.used)
        await self._begin(
            [*answer_headers(reply.headers), (b"content-length", str(len(body)).encode())], told, deadline
        )
        await self.send({"type": "http.response.body", "body": body})
        self.asking.passed_on()

    async def _stream(self, reply: Reply, told: Told, marks: Marks, deadline: asyncio.Timeout) -> None:
        listening, held, rest, pieces = Listening(marks), b"", b"", 0
        async with aclosing(reply.pieces()) as chunks:
            async for chunk in chunks:
                whole, rest = cut(rest + chunk if rest else chunk)
                _check_size(len(held) + len(rest))
                if not self._is_begun:
                    held += whole
                    if not _is_to_begin(held):
                        continue
                    await self._begin(answer_headers(reply.headers), told, deadline)
                    whole = held
                listening.arrived(whole)
                pieces += 1
                self.asking.spend(told.used + pieces)
                await self._pass_on(whole)
                listening.taken()
        listening.ended()
        self.asking.spend(_ended(rest).used)
        await self.send({"type": "http.response.body", "body": b""})
        self.asking.passed_on()

    async def _begin(self, headers: Iterable[tuple[bytes, bytes]], told: Told, deadline: asyncio.Timeout) -> None:
        """From here on the client has a candidate's answer. Raises ServeError for a client that is beyond its limit."""
        standing = self.asking.charge(told.most)
        self._is_begun = True
        deadline.reschedule(None)
        await self.send({"type": "http.response.start", "status": 200, "headers": [*headers, *standing]})

    async def _pass_on(self, events: bytes) -> None:
        if events:
            await self.send({"type": "http.response.body", "body": events, "more_body": True})

    async def _break_off(self, error: CandidateError) -> None:
        """As a stream ends whose engine dies here. A candidate that could still tell has told it so itself."""
        failed = ServeError(Failure.UNAVAILABLE, "The model stopped while answering. Try again.")
        await self.asking.fail(failed)
        said = b"" if error.outcome is Outcome.FAILED else sse.event(envelope(failed)) + sse.DONE
        await self.send({"type": "http.response.body", "body": said})


def _accepted(reply: Reply) -> Told:
    """What the candidate tells at the beginning. Raises CandidateError where it is no beginning of an answer."""
    status = reply.status
    if one_of(reply.headers, REFUSED):
        raise CandidateError(Outcome.MISDIRECTED, f"status {status}")
    if status == 429:
        raise CandidateError(Outcome.OVERLOADED, "status 429")
    told = read_told(one_of(reply.headers, TOLD)) if status == 200 else None
    if told is None:
        raise CandidateError(Outcome.REFUSED if 400 <= status < 500 else Outcome.FAILED, f"status {status}")
    return told


def _ended(line: bytes) -> Told:
    """What it tells at the end. Raises CandidateError where it does not, or where the answer failed."""
    told = read_told(line.removeprefix(TRAILER)) if line.startswith(TRAILER) else None
    if told is None:
        raise CandidateError(Outcome.TRUNCATED, "the end is missing")
    if told.outcome != "ok":
        raise CandidateError(Outcome.FAILED, "it failed while answering")
    return told


def _is_to_begin(held: bytes) -> bool:
    """Role and sources wait for the first token: where the model dies over the prompt, nobody sees it."""
    found = news(held)
    if found is News.ERROR:
        raise CandidateError(Outcome.FAILED, "an error in the place of the answer")
    return found is not News.NOTHING


async def _read(reply: Reply) -> bytes:
    parts: list[bytes] = []
    size = 0
    async with aclosing(reply.pieces()) as pieces:
        async for piece in pieces:
            size += len(piece)
            _check_size(size)
            parts.append(piece)
    return b"".join(parts)


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise CandidateError(Outcome.FAILED, f"more than {_MOST_BYTES} bytes")


def _at(began: float, seconds: float | None) -> float | None:
    """The moment that the candidate speaks of, by our clock: not later than now, whatever it says."""
    return None if seconds is None else min(began + seconds, time.monotonic())
