"""Each request's caller, found before anything reads the request."""

from collections.abc import Callable
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from tailhold_server.access.bearer import bearer_token, unauthenticated
from tailhold_server.access.caller import SCOPE_KEY, Caller
from tailhold_server.access.keys import Keys
from tailhold_server.access.watched import KEPT_SECONDS, Watched
from tailhold_server.errors import Failure, ServeError
from tailhold_server.routes.envelope import error_response


class Authenticator(Protocol):
    """Tells who bears a token, on whatever surface it came."""

    async def caller(self, token: str) -> Caller:
        """Raises ServeError: 401 for a token of nobody, 403 for one without a tenant that it needs."""


class KeyAuthenticator:
    """By the keys of a Secret."""

    def __init__(self, keys: Watched[Keys], tenant_of: Callable[[str], str]) -> None:
        self._keys = keys
        self._tenant_of = tenant_of

    async def caller(self, token: str) -> Caller:
        """The client whose key it is, with its tenant."""
        if self._keys.age_seconds > KEPT_SECONDS:
            told = "The keys of clients cannot be read, so nobody can be let in. Try again later."
            raise ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=30)
        client = self._keys.value.client(token)
        if client is None:
            raise unauthenticated("The API key is none of ours.")
        return Caller(client, self._tenant_of(client))


class Authenticated:
    """Lets requests through that an authenticator knows the caller of, which stands in their scope then."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, deny: Callable[[ServeError], None]) -> None:
        self._app = app
        self._authenticator = authenticator
        self._deny = deny

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Nothing of the request's body is read before."""
        if scope["type"] == "http":
            values = [value for name, value in scope["headers"] if name == b"authorization"]
            try:
                scope[SCOPE_KEY] = await self._authenticator.caller(bearer_token(values))
            except ServeError as error:
                self._deny(error)
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)
