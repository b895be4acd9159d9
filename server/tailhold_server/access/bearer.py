"""The `Authorization` header: one, with a bearer token."""

from collections.abc import Sequence

from tailhold_server.errors import Failure, ServeError

MOST_CHARACTERS = 16384
"""Longer than any token of an issuer."""
_CHALLENGE = {"www-authenticate": "Bearer"}


def unauthenticated(message: str) -> ServeError:
    """Who asks is not known."""
    return ServeError(Failure.UNAUTHENTICATED, message, code="invalid_api_key", headers=_CHALLENGE)


def bearer_token(values: Sequence[bytes]) -> str:
    """The token out of the values of all `Authorization` headers. Raises ServeError, which repeats nothing of them."""
    if not values:
        raise unauthenticated("No API key was sent. Send `Authorization: Bearer` and your key.")
    if len(values) > 1:
        raise unauthenticated("More than one `Authorization` header was sent. Send one.")
    scheme, _, token = values[0].partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token:
        raise unauthenticated("The `Authorization` header has to be `Bearer` and your key.")
    if len(token) > MOST_CHARACTERS or not token.isascii():
        raise unauthenticated("The API key is none of ours.")
    return token.decode("ascii")
