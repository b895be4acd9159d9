"""The operator's key, and the tokens that it signs for pods."""

import base64
import json
import time
from collections.abc import Callable

from joserfc import jwt
from joserfc.jwk import OKPKey

from tailhold_operator.cluster import Cluster
from tailhold_operator.errors import UnavailableError
from tailhold_operator.kinds import KINDS, Manifest, Ref

_ALGORITHM = "Ed25519"
_SECRET_KEY = "operator.jwk"  # noqa: S105 - the name of a field
_LIFETIME_SECONDS = 60


class Signer:
    """Signs for pods. The private half never leaves the operator's own namespace."""

    def __init__(self, key: OKPKey, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    @property
    def public_key(self) -> str:
        """The public half as a JWK; the same text each time."""
        return json.dumps(self._key.as_dict(private=False), sort_keys=True, separators=(",", ":"))

    def token(self, audience: str) -> str:
        """A token for one pipeline's pods, valid for a minute."""
        now = int(self._clock())
        claims = {"aud": audience, "iat": now, "exp": now + _LIFETIME_SECONDS}
        return jwt.encode({"alg": _ALGORITHM}, claims, self._key, algorithms=[_ALGORITHM])


async def read_signer(cluster: Cluster, namespace: str, release: str) -> Signer:
    """The key of the release, made at the first start. Of two that make one, the first wins."""
    ref = Ref("Secret", namespace, f"{release}-key")
    found = await cluster.read(ref)
    if found is None:
        await cluster.create(_render_secret(ref, OKPKey.generate_key("Ed25519", private=True)))
        found = await cluster.read(ref)
    if found is None:
        raise UnavailableError(f"{ref} was made and is not there")
    return Signer(OKPKey.import_key(json.loads(base64.b64decode(found["data"][_SECRET_KEY]))))


def _render_secret(ref: Ref, key: OKPKey) -> Manifest:
    text = json.dumps(key.as_dict(private=True), sort_keys=True)
    return {
        "apiVersion": KINDS["Secret"].api_version,
        "kind": "Secret",
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "type": "Opaque",
        "data": {_SECRET_KEY: base64.b64encode(text.encode()).decode()},
    }
