"""Who may hand over content: the bearer of a token that the operator signed for this pipeline just now."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

LIFETIME_SECONDS = 60
LEEWAY_SECONDS = 10
"""Clocks of two nodes may differ by so much."""


class NotAllowedError(Exception):
    """Why a call is refused."""


class Authority:
    """Checks tokens against the operator's public key, read anew each time: its ConfigMap may change."""

    def __init__(self, key_path: Path, audience: str, now: Callable[[], float] = time.time) -> None:
        self._key_path = key_path
        self._audience = audience
        self._now = now

    @property
    def is_on(self) -> bool:
        """Without a key or an audience nobody is allowed."""
        return bool(self._audience) and self._key_path.is_file()

    def check(self, authorization: str) -> None:
        """Raises NotAllowedError unless the header carries a valid token."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise NotAllowedError("a bearer token is needed")
        try:
            key = OKPKey.import_key(json.loads(self._key_path.read_text()))
            decoded = jwt.decode(token.strip(), key, algorithms=["EdDSA", "Ed25519"])
            self._rules().validate(decoded.claims)
        except (JoseError, TypeError, ValueError, OSError) as error:
            raise NotAllowedError(f"the token is refused: {type(error).__name__}") from None
        if int(decoded.claims["exp"]) - self._now() > LIFETIME_SECONDS + LEEWAY_SECONDS:
            raise NotAllowedError("the token is valid for longer than a minute")

    def _rules(self) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            now=int(self._now()),
            leeway=LEEWAY_SECONDS,
            aud={"essential": True, "value": self._audience},
            exp={"essential": True},
        )
