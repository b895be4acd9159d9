"""The server's certificate, and the authorities of its clients', renewed without cutting a connection."""

import logging
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from tailhold_server.access.watched import FilesRefusedError, Watched, read_file

_LOG = logging.getLogger(__name__)

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
"""Names of the files, as in Secrets of the type kubernetes.io/tls."""


@dataclass(frozen=True)
class Material:
    """A certificate that fits its key."""

    certificate: bytes
    """PEM, with its chain."""
    key: bytes = field(repr=False)
    """PEM."""
    authorities: bytes | None
    """PEM of the authorities that sign clients' certificates; None where clients need none."""
    expires: float
    """Seconds since 1970."""
    context: ssl.SSLContext = field(compare=False)
    """For clients' handshakes."""
    internal: ssl.SSLContext = field(compare=False)
    """For those of kubelet, the operator and pods that hand over, who have no certificates."""
    peers: ssl.SSLContext = field(compare=False)
    """To check those of other pods with."""


class Certificates:
    """What handshakes are made with: the contexts, which renew themselves, or the PEM bytes of `newest` for a surface
    with TLS of its own.
    """

    def __init__(self, watched: Watched[Material]) -> None:
        self._watched = watched
        self.context = _context(watched.value.authorities)
        self.context.sni_callback = self._choose
        self.internal = _context(None)
        self.internal.sni_callback = self._choose_internal

    @property
    def newest(self) -> Material:
        """What is in force."""
        return self._watched.value

    def refresh(self) -> None:
        """Take up new files: handshakes from now on use them."""
        self._watched.refresh()

    # Called in each handshake, also where the client names no host.
    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.newest.context

    def _choose_internal(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.newest.internal


def read_material(folder: Path, authorities: Path | None) -> Material:
    """What the files of a certificate's and of an authorities' folder say. Raises FilesRefusedError and OSError."""
    certificate, key = read_file(folder / CERTIFICATE), read_file(folder / KEY)
    trusted = read_file(authorities / AUTHORITIES) if authorities else None
    internal = _loaded(folder, None)
    context = _loaded(folder, trusted) if trusted is not None else internal
    if (read_file(folder / CERTIFICATE), read_file(folder / KEY)) != (certificate, key):
        raise FilesRefusedError(f"{folder} changed while it was read; it is read again")
    peers = _checking(folder, certificate)
    return Material(certificate, key, trusted, _expiry(folder, certificate), context, internal, peers)


def _checking(folder: Path, certificate: bytes) -> ssl.SSLContext:
    """Trusts whom the pod trusts anyway, its own certificate and those above it, and what cert-manager puts beside."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    own = folder / AUTHORITIES
    for each in (certificate, *((read_file(own),) if own.is_file() else ())):
        with suppress(ssl.SSLError, UnicodeDecodeError):  # said by who serves with it, or not needed
            context.load_verify_locations(cadata=each.decode("ascii"))
    return context


def is_its_own_authority(certificate: Path) -> bool:
    """Whether a certificate signs itself: a client has to be given it. Raises OSError and ValueError."""
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    return read.issuer == read.subject


def _loaded(folder: Path, authorities: bytes | None) -> ssl.SSLContext:
    context = _context(authorities)
    try:
        # A key with a password is refused; without this, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=lambda: b"")
    except ssl.SSLError as error:
        raise FilesRefusedError(
            f"{folder}: `{CERTIFICATE}` and `{KEY}` are no certificate with its key: {error.reason or error}"
        ) from error
    return context


def _context(authorities: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if authorities is None:
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    # A session that is resumed shows no certificate again: one of an authority that is no longer trusted would go on.
    # TLS 1.2 resumes by the server's own memory too, and Python has no word to switch that off.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise FilesRefusedError(f"`{AUTHORITIES}` holds no certificates of authorities: {error}") from error
    return context


def _expiry(folder: Path, certificate: bytes) -> float:
    try:
        expires = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise FilesRefusedError(f"{folder}: `{CERTIFICATE}` is no certificate: {error}") from error
    if expires < time.time():
        _LOG.warning("the certificate in %s has expired: clients will refuse it", folder)
    return expires
