"""Where things lie on this machine, without a cluster: claims and Secrets are folders of their names."""

import os
from collections.abc import MutableMapping
from pathlib import Path


class ServeFailedError(Exception):
    """Why the server cannot be started; the text is for the user."""


def cache_folder() -> Path:
    """Where claims lie without a cluster."""
    if given := os.environ.get("TAILHOLD_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tailhold"


def here(env: MutableMapping[str, str]) -> None:
    """Where claims and Secrets lie and files are fetched to without a cluster."""
    for name, folder in {
        "TAILHOLD_CLAIMS": "claims",
        "TAILHOLD_SECRETS": "secrets",
        "TAILHOLD_FETCHED": "fetched",
        "TAILHOLD_TRUST_BUNDLE": "trust.pem",
    }.items():
        env.setdefault(name, str(cache_folder() / folder))
