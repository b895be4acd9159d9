"""Tokens of an OpenID Connect issuer, checked with keys that are fetched beforehand: never one request for another."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import GuestProtocol, JWKRegistry, Key, KeySet

from tailhold_api.access import Oidc
from tailhold_server.access.bearer import unauthenticated
from tailhold_server.access.caller import Caller
from tailhold_server.errors import Failure, ServeError

_LOG = logging.getLogger(__name__)

LEEWAY_SECONDS = 60
"""Clocks may differ by so much."""
KEPT_SECONDS = 3600.0
"""Keys are fetched anew after so long."""
APART_SECONDS = 30.0
"""Two fetches are at least so far apart, whatever tokens name."""
_MOST_BYTES = 1024 * 1024
_LONGEST_NAME = 255
_TRUSTED = re.compile(r"https://|http://(localhost|127\.0\.0\.1)(:|/|$)")

Fetch = Callable[[str], Awaitable[Mapping[str, Any]]]


class IssuerError(Exception):
    """Keys that cannot be had, and why."""


class Issuer:
    """An issuer's keys and what its tokens have to say. Event loop only."""

    def __init__(
        self,
        oidc: Oidc,
        fetch: Fetch,
        tell: Callable[[bool], None],
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._oidc = oidc
        self._fetch = fetch
        self._tell = tell
        self._now = now
        self._clock = clock
        self._keys: KeySet | None = None
        self._tried_at: float | None = None
        self._got_at: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def caller(self, token: str) -> Caller:
        """Who bears the token. Raises ServeError."""
        try:
            claims = await self._verified(token)
            self._rules().validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            _LOG.info("a token is refused: %s", type(error).__name__)
            raise unauthenticated(f"The token is refused: {_words(error)}.") from None
        return self._named(claims)

    async def refresh(self) -> None:
        """Fetch the keys where they are older than an hour, or missing."""
        if self._got_at is None or self._clock() - self._got_at >= KEPT_SECONDS:
            await self._fetched()

    async def _verified(self, token: str) -> dict[str, Any]:
        if self._keys is None:
            await self._fetched()
        try:
            return self._decoded(token)
        except InvalidKeyIdError:
            await self._fetched()
            return self._decoded(token)

    def _decoded(self, token: str) -> dict[str, Any]:
        if self._keys is None:
            raise ServeError(
                Failure.UNAVAILABLE, "The issuer's keys are not known yet. Try again.", retry_after_seconds=30
            )
        algorithms = [each.value for each in self._oidc.algorithms]
        return jwt.decode(token, self._key, algorithms=algorithms).claims

    def _key(self, guest: GuestProtocol) -> Key:
        assert self._keys is not None  # noqa: S101  looked at before
        return self._keys.get_by_kid(guest.headers().get("kid"))

    def _rules(self) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            now=int(self._now()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._oidc.issuer},
            aud={"essential": True, "value": self._oidc.audience},
            exp={"essential": True},
            sub={"essential": True},
        )

    def _named(self, claims: Mapping[str, Any]) -> Caller:
        client = _name(claims["sub"])
        if client is None:
            raise unauthenticated("The token is refused: its `sub` is no name.")
        if self._oidc.tenant_claim is None:
            return Caller(client)
        tenant = _name(claims.get(self._oidc.tenant_claim))
        if tenant is None:
            raise ServeError(
                Failure.FORBIDDEN,
                f"The token names no tenant: its claim `{self._oidc.tenant_claim}` has to be a text.",
                code="tenant_missing",
            )
        return Caller(client, tenant)

    async def _fetched(self) -> None:
        """All who need the keys wait for one fetch; right after one nobody does."""
        if self._fetching is None:
            if self._tried_at is not None and self._clock() - self._tried_at < APART_SECONDS:
                return
            self._tried_at = self._clock()
            self._fetching = asyncio.ensure_future(self._take_keys())
            self._fetching.add_done_callback(self._over)
        await asyncio.shield(self._fetching)

    def _over(self, _: asyncio.Task[None]) -> None:
        self._fetching = None

    async def _take_keys(self) -> None:
        try:
            url = self._oidc.jwks_url or await self._discovered()
            self._keys = usable(await self._fetch(url))
        except (IssuerError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            kept = "the old ones stay in force" if self._keys else "nobody can be let in until they are"
            _LOG.error("keys of %s cannot be had, %s: %s", self._oidc.issuer, kept, error or type(error).__name__)
            self._tell(False)
        else:
            self._got_at = self._clock()
            self._tell(True)

    async def _discovered(self) -> str:
        said = await self._fetch(f"{self._oidc.issuer.rstrip('/')}/.well-known/openid-configuration")
        if said.get("issuer") != self._oidc.issuer:
            raise IssuerError(f"its configuration is of another issuer, `{said.get('issuer')}`")
        url = said.get("jwks_uri")
        if not isinstance(url, str) or not _TRUSTED.match(url):
            raise IssuerError("its `jwks_uri` does not begin with https://")
        return url


def usable(said: Mapping[str, Any]) -> KeySet:
    """The public keys for signatures; others in the set are passed over. Raises IssuerError where there are none."""
    listed = said.get("keys")
    found = [key for each in (listed if isinstance(listed, list) else ()) if (key := _key_of(each))]
    if not found:
        raise IssuerError("there is no key for signatures in its set")
    return KeySet(found)


def _key_of(said: Any) -> Key | None:
    if not isinstance(said, dict) or said.get("kty") not in ("RSA", "EC", "OKP") or said.get("use", "sig") != "sig":
        return None  # `oct` above all: a shared secret in a public set is known to everybody
    try:
        return JWKRegistry.import_key(said)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


async def fetch(url: str) -> Mapping[str, Any]:
    """A JSON object over HTTP, within five seconds and a mebibyte. Raises httpx.HTTPError, ValueError, IssuerError."""
    async with httpx.AsyncClient(timeout=5) as client, client.stream("GET", url) as answer:
        answer.raise_for_status()
        body = b""
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                raise IssuerError(f"{url} answers with more than {_MOST_BYTES} bytes")
    said = json.loads(body)
    if not isinstance(said, dict):
        raise IssuerError(f"{url} does not answer with a JSON object")
    return said


def _name(value: Any) -> str | None:
    is_one = isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()
    return value if is_one else None


def _words(error: Exception) -> str:
    """What a client may read: which claim, not what it should have been."""
    claim = getattr(error, "claim", None)
    return f"its `{claim}` does not fit" if isinstance(claim, str) else "it is not signed by a key of the issuer"
