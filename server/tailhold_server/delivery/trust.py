"""Authorities of the company's own, beside the public ones, for every library that fetches."""

import os
import ssl
from collections.abc import MutableMapping
from pathlib import Path

import certifi

from tailhold_api import names
from tailhold_api.conditions import Reason
from tailhold_server.errors import StartError

VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE")
"""Each library looks at another one of them."""
_FILE = "ca.crt"


def trust(env: MutableMapping[str, str] = os.environ) -> Path | None:
    """Where certificates are mounted, write one file of public and own ones, and name it to all libraries.

    None where none are. What `SSL_CERT_FILE` named before stays in it. Raises StartError for a file that is none.
    """
    own = Path(env.get("TAILHOLD_TRUST") or names.TRUST_FOLDER) / _FILE
    if not own.is_file():
        return None
    _check(own)
    given = env.get("SSL_CERT_FILE")
    roots = [Path(given)] if given and Path(given) != _bundle(env) else _public()
    bundle = _bundle(env)
    bundle.parent.mkdir(parents=True, exist_ok=True)
    aside = bundle.with_suffix(f".{os.getpid()}")
    aside.write_text("\n".join(each.read_text(errors="replace") for each in (*roots, own) if each.is_file()) + "\n")
    aside.replace(bundle)
    env.update(dict.fromkeys(VARIABLES, str(bundle)))
    return bundle


def _bundle(env: MutableMapping[str, str]) -> Path:
    return Path(env.get("TAILHOLD_TRUST_BUNDLE") or f"{names.CACHE_FOLDER}/trust.pem")


def _public() -> list[Path]:
    """The image's, which its builder may have added to, and those that Python's libraries bring."""
    system = ssl.get_default_verify_paths().cafile
    return [*([Path(system)] if system else []), Path(certifi.where())]


def _check(own: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(own))
    except (ssl.SSLError, OSError) as error:
        text = f"`pod.trust`: {own} holds no certificate in PEM ({error}): compare the key that it names"
        raise StartError(Reason.START_FAILED, text) from error
