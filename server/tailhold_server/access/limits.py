"""How much each client may ask: buckets that fill up again within a minute. Time is an argument."""

import math
from collections import OrderedDict
from dataclasses import dataclass, field

from tailhold_api.access import Limits

SECONDS = 60.0
"""A bucket that was emptied is full again after so long."""
MOST_CLIENTS = 65536
"""Clients that are remembered: about 20 MiB. Beyond them the one that asked longest ago is forgotten."""


@dataclass(frozen=True)
class Refusal:
    """Why a client has to wait."""

    words: str
    retry_after_seconds: int | None
    """None where waiting does not help."""


@dataclass(frozen=True)
class Standing:
    """One of a client's buckets, as its headers say it."""

    limit: int
    remaining: int
    reset_seconds: float
    """Until nothing is spent any more."""


@dataclass
class _Account:
    """What a client has spent and not got back yet. What is spent decays, so that new limits hold at once."""

    at: float
    requests: float = 0.0
    tokens: float = 0.0
    running: int = 0

    def pass_time(self, limits: Limits, now: float) -> None:
        """Give back what the time since the last look brings."""
        passed, self.at = max(0.0, now - self.at), max(self.at, now)
        self.requests = _decayed(self.requests, limits.requests_per_minute, passed)
        self.tokens = _decayed(self.tokens, limits.tokens_per_minute, passed)


def _decayed(spent: float, per_minute: int | None, passed: float) -> float:
    return 0.0 if per_minute is None else max(0.0, spent - passed * per_minute / SECONDS)


@dataclass
class Ticket:
    """A question that was let in. `Limiter.settle` is called once at its end; twice does no harm."""

    client: str
    limits: Limits
    _account: _Account
    charged: int = 0
    """Tokens that were taken for it."""
    open: bool = field(default=True)


class Limiter:
    """The accounts of all clients. Event loop only."""

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self._most_clients = most_clients
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accounts)

    def enter(self, client: str, limits: Limits, now: float) -> Ticket | Refusal:
        """Let a question in, or say why not; what is refused costs nothing. Its tokens are charged once known."""
        account = self._account(client, limits, now)
        refused = (
            _busy(limits, account.running)
            or _spent("questions", limits.requests_per_minute, account.requests, 1)
            or _spent("tokens", limits.tokens_per_minute, account.tokens, 1)
        )
        if refused:
            return refused
        account.requests += limits.requests_per_minute is not None
        account.running += 1
        return Ticket(client, limits, account)

    def charge(self, ticket: Ticket, tokens: int, now: float) -> Refusal | None:
        """Take the most tokens that the question can need, or say why not; then it is settled with none used."""
        limits, account = ticket.limits, ticket._account
        account.pass_time(limits, now)
        refused = _spent("tokens", limits.tokens_per_minute, account.tokens, tokens)
        if refused is None and limits.tokens_per_minute is not None:
            account.tokens += tokens
            ticket.charged = tokens
        return refused

    def settle(self, ticket: Ticket, used: int, now: float) -> None:
        """The question is over and needed `used` tokens: the rest is given back."""
        if not ticket.open:
            return
        ticket.open = False
        account = ticket._account
        account.pass_time(ticket.limits, now)
        account.running -= 1
        account.tokens = max(0.0, account.tokens - max(0, ticket.charged - used))

    def standing(self, ticket: Ticket, now: float) -> tuple[Standing | None, Standing | None]:
        """Of questions and tokens; None where there is no limit."""
        ticket._account.pass_time(ticket.limits, now)
        return (
            _standing(ticket.limits.requests_per_minute, ticket._account.requests),
            _standing(ticket.limits.tokens_per_minute, ticket._account.tokens),
        )

    def _account(self, client: str, limits: Limits, now: float) -> _Account:
        account = self._accounts.pop(client, None) or _Account(now)
        account.pass_time(limits, now)
        self._accounts[client] = account
        self._forget(now)
        return account

    def _forget(self, now: float) -> None:
        """Clients that have everything back are as good as new; a few at a time."""
        for _ in range(2):
            client, oldest = next(iter(self._accounts.items()))
            if oldest.running:
                self._accounts.move_to_end(client)
            elif now - oldest.at >= SECONDS or len(self._accounts) > self._most_clients:
                del self._accounts[client]


def duration(seconds: float) -> str:
    """As OpenAI writes it: `20ms`, `7s`, `1m30s`."""
    if seconds < 1:
        return f"{math.ceil(1000 * seconds)}ms"
    whole = math.ceil(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def headers(requests: Standing | None, tokens: Standing | None) -> dict[str, str]:
    """The headers that OpenAI's API has too."""
    found: dict[str, str] = {}
    for kind, each in (("requests", requests), ("tokens", tokens)):
        if each is not None:
            found[f"x-ratelimit-limit-{kind}"] = str(each.limit)
            found[f"x-ratelimit-remaining-{kind}"] = str(each.remaining)
            found[f"x-ratelimit-reset-{kind}"] = duration(each.reset_seconds)
    return found


def _busy(limits: Limits, running: int) -> Refusal | None:
    if limits.max_concurrent is None or running < limits.max_concurrent:
        return None
    return Refusal(f"{running} of your questions are being answered, which is your limit", 1)


def _spent(what: str, per_minute: int | None, spent: float, wanted: int) -> Refusal | None:
    """None where `wanted` more fit. A hair over the limit is float error."""
    if per_minute is None or spent + wanted <= per_minute + 1e-6:
        return None
    if wanted > per_minute:
        return Refusal(f"the question may need {wanted} {what}, your limit is {per_minute} a minute", None)
    wait = math.ceil((spent + wanted - per_minute) * SECONDS / per_minute)
    return Refusal(f"your limit of {per_minute} {what} a minute is reached", max(1, wait))


def _standing(per_minute: int | None, spent: float) -> Standing | None:
    if per_minute is None:
        return None
    return Standing(per_minute, max(0, math.floor(per_minute - spent + 1e-6)), spent * SECONDS / per_minute)
