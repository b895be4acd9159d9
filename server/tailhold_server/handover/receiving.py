"""A candidate's side: what pods of the same pipeline hand over is let in, and nothing else."""

import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from tailhold_server.authority import Authority, NotAllowedError
from tailhold_server.errors import Failure, ServeError
from tailhold_server.handover.wire import OURS, REFUSED, REQUEST, REVISION, TOKEN, is_request_id, one_of
from tailhold_server.routes.envelope import error_response

_SCOPE_KEY = "tailhold.handed"
_PATHS = ("/v1/chat/completions",)
_BELIEVED_SECONDS = 10.0
"""A token that was checked is not checked again for so long: it is the same in each request until the operator's next
word."""
_MOST_TOKENS = 64


@dataclass(frozen=True)
class Handed:
    """Of a request that another pod hands over: that one counts it and holds its client to its limits."""

    request_id: str


def handed(scope: MutableMapping[str, Any]) -> Handed | None:
    """None for a client's own request."""
    found = scope.get(_SCOPE_KEY)
    return found if isinstance(found, Handed) else None


class Receiving:
    """Stands before the clients' application on the port of its own that pods hand over to."""

    def __init__(
        self,
        app: ASGIApp,
        authority: Authority,
        revision: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`revision` names the one in force."""
        self._app = app
        self._authority = authority
        self._revision = revision
        self._clock = clock
        self._believed: OrderedDict[bytes, float] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Nothing of a request's body is read before."""
        if scope["type"] != "http":
            return
        try:
            scope[_SCOPE_KEY] = self._checked(scope)
        except ServeError as error:
            await error_response(error)(scope, receive, send)
            return
        scope["headers"] = [each for each in scope["headers"] if not each[0].startswith(OURS)]
        await self._app(scope, receive, send)

    def _checked(self, scope: Scope) -> Handed:
        """Raises ServeError."""
        headers = scope["headers"]
        self._check(one_of(headers, TOKEN))
        if scope["path"] not in _PATHS:
            raise _refused(Failure.NOT_FOUND, "This is not handed over.")
        request_id, revision = one_of(headers, REQUEST), one_of(headers, REVISION)
        if not is_request_id(request_id):
            raise _refused(Failure.INVALID, f"`{REQUEST.decode()}` is no id of a request.")
        if revision != self._revision().encode():
            raise _refused(Failure.MISDIRECTED, f"This pod runs on the revision {self._revision()}.")
        return Handed(request_id.decode())

    def _check(self, token: bytes) -> None:
        """Raises ServeError unless the operator signed it for this."""
        now = self._clock()
        if self._believed.get(token, now) > now:
            return
        self._believed.pop(token, None)
        try:
            if not self._authority.is_on:
                raise NotAllowedError("no operator's key is given")
            self._authority.check(f"Bearer {token.decode('ascii', 'replace')}")
        except NotAllowedError as error:
            raise _refused(Failure.UNAUTHENTICATED, f"Only pods of this pipeline hand over: {error}.") from None
        self._believed[token] = now + _BELIEVED_SECONDS
        if len(self._believed) > _MOST_TOKENS:
            self._believed.popitem(last=False)


def _refused(failure: Failure, message: str) -> ServeError:
    return ServeError(failure, message, code="handover_refused", headers={REFUSED.decode(): "1"})
