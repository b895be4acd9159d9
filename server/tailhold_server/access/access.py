"""What stands before the pipeline, as a pod part asks for it, and kept up to date while it serves."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_api.spec import Program
from tailhold_server.access.authentication import Authenticator, KeyAuthenticator
from tailhold_server.access.authorities import Bundle, read_bundle
from tailhold_server.access.certificates import Certificates, Pair, read_pair
from tailhold_server.access.keys import Keys, lacking, read_keys
from tailhold_server.access.oidc import Issuer, fetch
from tailhold_server.access.watched import FilesRefusedError, Watched
from tailhold_server.errors import StartError
from tailhold_server.telemetry import Telemetry

_LOG = logging.getLogger(__name__)

MOST_SHUT_OUT = 20
"""Names of clients that are told of."""
LOOK_SECONDS = 2.0
"""Between two looks at the files: kubelet takes a minute to renew them."""


@dataclass(frozen=True)
class Access:
    """One for each server. What is None is not asked for."""

    authenticator: Authenticator | None
    certificates: Certificates | None
    _keys: Watched[Keys] | None
    _issuer: Issuer | None
    _telemetry: Telemetry

    async def keep_current(self) -> None:
        """Take up new files and new keys of the issuer, until it is cancelled."""
        while True:
            try:
                await self.refresh()
            except Exception:
                _LOG.exception("looking for new keys and certificates failed; it is tried again")
            await asyncio.sleep(LOOK_SECONDS)

    async def refresh(self) -> None:
        """Look once. Files are read off the event loop."""
        if self._issuer:
            await self._issuer.refresh()
        if self._keys:
            await asyncio.to_thread(self._keys.refresh)
        if self.certificates:
            await asyncio.to_thread(self.certificates.refresh)
            self._telemetry.show_expiry(self.certificates.newest.expires)

    def told(self) -> dict[str, Any]:
        """What cannot be used of what is asked for, without a word of it: for `/v1/tuning`."""
        pair, bundle = self._told_pair(), self._told_bundle()
        return {"apiKeys": self._told_keys(), "certificate": pair, "clientAuthorities": bundle}

    def _told_keys(self) -> dict[str, Any] | None:
        if self._keys is None:
            return None
        shut_out = sorted(self._keys.value.shut_out)
        return {
            "current": self._keys.is_current and not shut_out,
            "ageSeconds": round(self._keys.age_seconds),
            "clients": len(self._keys.value),
            "shutOut": shut_out[:MOST_SHUT_OUT],
            "shutOutCount": len(shut_out),
        }

    def _told_pair(self) -> dict[str, Any] | None:
        if self.certificates is None:
            return None
        expires = datetime.fromtimestamp(self.certificates.newest.expires, UTC)
        return {"current": self.certificates.is_pair_current, "expires": expires.isoformat()}

    def _told_bundle(self) -> dict[str, Any] | None:
        lacks = self.certificates.authorities_lack if self.certificates else None
        if self.certificates is None or lacks is None:
            return None
        return {"current": not lacks, "lacks": lacks, "closed": self.certificates.are_authorities_lost}


def open_access(
    program: Program,
    secrets: Path,
    telemetry: Telemetry,
    tenant_of: Callable[[str], str],
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """Read what is asked for; Secrets are folders of their names in `secrets`. Raises StartError."""
    try:
        keys = _keys(program, secrets, telemetry, clock)
        certificates = _certificates(program, secrets, telemetry, clock)
    except FilesRefusedError as error:
        raise StartError(Reason.START_FAILED, str(error), final=False) from error
    oidc = program.auth.oidc if program.auth else None
    issuer = Issuer(oidc, fetch, partial(telemetry.show_current, "issuer_keys")) if oidc else None
    return Access(KeyAuthenticator(keys, tenant_of) if keys else issuer, certificates, keys, issuer, telemetry)


def _keys(program: Program, secrets: Path, telemetry: Telemetry, clock: Callable[[], float]) -> Watched[Keys] | None:
    """Raises FilesRefusedError where nobody could be let in: such a pod takes no other one's place."""
    if program.auth is None or program.auth.api_keys is None:
        return None
    folder = secrets / program.auth.api_keys.secret_name

    said = [""]

    def tell(keys: Keys | None) -> None:
        telemetry.show_current("api_keys", keys is not None and not lacking(keys, folder))
        if keys is not None:
            telemetry.show_shut_out(keys.shut_out)
            if (words := lacking(keys, folder)) and words != said[0]:
                _LOG.error("%s", words)
            said[0] = words

    watched = Watched((folder,), partial(read_keys, folder), tell, clock, lambda keys: keys.is_whole)
    if not watched.value:
        raise FilesRefusedError(lacking(watched.value, folder))
    return watched


def _certificates(
    program: Program, secrets: Path, telemetry: Telemetry, clock: Callable[[], float]
) -> Certificates | None:
    if program.tls is None:
        return None
    folder, trusted = secrets / program.tls.secret_name, program.tls.client_ca_secret_name

    def tell(pair: Pair | None) -> None:
        telemetry.show_current("certificate", pair is not None)

    pair = Watched((folder,), partial(read_pair, folder), tell, clock)
    return Certificates(pair, _authorities(secrets / trusted, telemetry, clock) if trusted else None)


def _authorities(folder: Path, telemetry: Telemetry, clock: Callable[[], float]) -> Watched[Bundle]:
    said = [""]

    def tell(bundle: Bundle | None) -> None:
        telemetry.show_current("client_authorities", bundle is not None and not bundle.lacks)
        if bundle is not None:
            if bundle.lacks and bundle.lacks != said[0]:
                _LOG.error("%s: %s", folder, bundle.lacks)
            said[0] = bundle.lacks

    return Watched((folder,), partial(read_bundle, folder), tell, clock)
