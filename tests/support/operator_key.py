"""The operator's key, as servers in tests know it."""

import json
import time
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import OKPKey

from tailhold_server.settings import ServerSettings

AUDIENCE = "team/docs"
KEY = OKPKey.generate_key("Ed25519")


def token(key: OKPKey = KEY, **claims: Any) -> str:
    """As the operator signs them."""
    said = {"aud": AUDIENCE, "exp": int(time.time()) + 60} | claims
    signed = {name: value for name, value in said.items() if value is not None}
    return "Bearer " + jwt.encode({"alg": "Ed25519"}, signed, key, algorithms=["Ed25519"])


def written_key(folder: Path) -> Path:
    """The public half as a file."""
    path = folder / "operator.pub.json"
    path.write_text(json.dumps(KEY.as_dict(private=False)))
    return path


def allowing(key_file: Path) -> ServerSettings:
    """A server of this pipeline."""
    return ServerSettings(public_key=key_file, pipeline=AUDIENCE)
