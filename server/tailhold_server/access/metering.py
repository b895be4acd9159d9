"""Questions within their client's limits: let in, charged, settled."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from tailhold_api.access import Limits
from tailhold_server.access.limits import Limiter, Refusal, Ticket, headers
from tailhold_server.errors import Failure, ServeError
from tailhold_server.pipeline import Answering

_NO_USE = {"x-should-retry": "false"}
"""What OpenAI's clients read before they try again."""
_NONE = Limits()
Pairs = tuple[tuple[bytes, bytes], ...]


class Meter:
    """Holds each client to the limits that are in force when it asks."""

    def __init__(self, limiter: Limiter, clock: Callable[[], float], deny: Callable[[str], None]) -> None:
        self._limiter = limiter
        self._clock = clock
        self._deny = deny

    def enter(self, client: str, limits: Limits) -> Ticket:
        """A place for one question, to be settled in any case. Raises ServeError."""
        ticket = self._limiter.enter(client, limits, self._clock())
        if isinstance(ticket, Refusal):
            raise self._refused(ticket, {})
        return ticket

    async def metered(self, ticket: Ticket, ask: Callable[[], Awaitable[Answering]]) -> Answering:
        """The question that `ask` admits, charged for the most that it can need and settled when it is closed.

        Raises ServeError.
        """
        try:
            answering = await ask()
        except BaseException:
            self.settle(ticket, 0)
            raise
        answering.on_close = lambda: self.settle(ticket, answering.tokens_used)
        try:
            answering.headers = self.charge(ticket, answering.prepared.most_tokens)
        except ServeError:
            answering.close()
            raise
        return answering

    def charge(self, ticket: Ticket, most_tokens: int) -> Pairs:
        """Take the most tokens that the question can need; where the client stands then, as headers.

        Raises ServeError.
        """
        refused = self._limiter.charge(ticket, most_tokens, self._clock())
        said = self._headers(ticket)
        if refused:
            raise self._refused(refused, said)
        return tuple((name.encode(), value.encode()) for name, value in said.items())

    def settle(self, ticket: Ticket, tokens_used: int) -> None:
        """The question is over; twice does no harm."""
        self._limiter.settle(ticket, tokens_used, self._clock())

    @contextmanager
    def counted(self, client: str, limits: Limits) -> Iterator[None]:
        """What needs no tokens of the generator. Raises ServeError."""
        ticket = self.enter(client, limits)
        try:
            yield
        finally:
            self.settle(ticket, 0)

    def _headers(self, ticket: Ticket) -> dict[str, str]:
        if ticket.limits == _NONE:
            return {}
        return headers(*self._limiter.standing(ticket, self._clock()))

    def _refused(self, refusal: Refusal, said: dict[str, str]) -> ServeError:
        self._deny("limit")
        wait = refusal.retry_after_seconds
        after = f" Try again in {wait} s." if wait is not None else " Ask for a shorter answer, or for a higher limit."
        return ServeError(
            Failure.OVERLOADED,
            f"Too much at once: {refusal.words}.{after}",
            code="rate_limit_exceeded",
            retry_after_seconds=wait,
            headers=said | (_NO_USE if wait is None else {}),
        )
