"""The server's certificate, and the authorities of its clients', renewed without cutting a connection."""

import logging
import os
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from tailhold_server.access.authorities import AUTHORITIES, Bundle, nobody
from tailhold_server.access.watched import KEPT_SECONDS, FilesRefusedError, Watched, read_file

_LOG = logging.getLogger(__name__)

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""Names of the files, as in Secrets of the type kubernetes.io/tls."""


@dataclass(frozen=True)
class Pair:
    """A certificate that fits its key."""

    certificate: bytes
    """PEM, with its chain."""
    key: bytes = field(repr=False)
    """PEM."""
    expires: float
    """Seconds since 1970."""
    authorities: bytes | None = None
    """PEM of those above it, where cert-manager puts them beside it."""


@dataclass(frozen=True)
class Material:
    """What handshakes are made with."""

    certificate: bytes
    """PEM, with its chain."""
    key: bytes = field(repr=False)
    """PEM."""
    authorities: bytes | None
    """PEM of the authorities that sign clients' certificates; None where clients need none."""
    expires: float
    """Of the certificate, in seconds since 1970."""
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

    def __init__(self, pair: Watched[Pair], authorities: Watched[Bundle] | None = None) -> None:
        self._pair = pair
        self._authorities = authorities
        self._nobody = nobody() if authorities else None
        self._made_of: tuple[Pair, bytes | None] | None = None
        self._make()
        self.context = _context(authorities.value.pem if authorities else None)
        self.context.sni_callback = self._choose
        self.internal = _context(None)
        self.internal.sni_callback = self._choose_internal

    @property
    def newest(self) -> Material:
        """What is in force. Once authorities could not be read for too long it lets no client in."""
        return self._closed if self.are_authorities_lost else self._open

    @property
    def are_authorities_lost(self) -> bool:
        """Whether nobody is let in, since nobody can tell any more who may."""
        return self._authorities is not None and self._authorities.age_seconds > KEPT_SECONDS

    @property
    def is_pair_current(self) -> bool:
        """Whether the newest certificate is in force."""
        return self._pair.is_current

    @property
    def authorities_lack(self) -> str | None:
        """What is wrong with clients' authorities; empty for nothing, None where clients need none."""
        watched = self._authorities
        return None if watched is None else watched.refused or watched.value.lacks

    def refresh(self) -> None:
        """Take up new files: handshakes from now on use them."""
        self._pair.refresh()
        if self._authorities is not None:
            self._authorities.refresh()
        self._make()

    def _make(self) -> None:
        pair, trusted = self._pair.value, self._authorities.value.pem if self._authorities else None
        if self._made_of != (pair, trusted):
            self._open, self._closed = _material(pair, trusted), _material(pair, self._nobody)
            self._made_of = pair, trusted

    # Called in each handshake, also where the client names no host.
    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.newest.context

    def _choose_internal(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self.newest.internal


def read_pair(folder: Path) -> Pair:
    """What the files of a certificate's folder say. Raises FilesRefusedError and OSError."""
    certificate, key = read_file(folder / CERTIFICATE), read_file(folder / KEY)
    try:
        _loaded(certificate, key, None)
    except ssl.SSLError as error:
        raise FilesRefusedError(
            f"{folder}: `{CERTIFICATE}` and `{KEY}` are no certificate with its key: {error.reason or error}"
        ) from error
    own = folder / AUTHORITIES
    return Pair(certificate, key, _expiry(folder, certificate), read_file(own) if own.is_file() else None)


def is_its_own_authority(certificate: Path) -> bool:
    """Whether a certificate signs itself: a client has to be given it. Raises OSError and ValueError."""
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    return read.issuer == read.subject


def _material(pair: Pair, authorities: bytes | None) -> Material:
    internal = _loaded(pair.certificate, pair.key, None)
    context = _loaded(pair.certificate, pair.key, authorities) if authorities is not None else internal
    return Material(pair.certificate, pair.key, authorities, pair.expires, context, internal, _checking(pair))


def _checking(pair: Pair) -> ssl.SSLContext:
    """Trusts whom the pod trusts anyway, its own certificate and those above it."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for each in (pair.certificate, pair.authorities or b""):
        with suppress(ssl.SSLError, UnicodeDecodeError, ValueError):  # said by who serves with it, or not needed
            context.load_verify_locations(cadata=each.decode("ascii"))
    return context


def _loaded(certificate: bytes, key: bytes, authorities: bytes | None) -> ssl.SSLContext:
    """OpenSSL reads files alone: this one is in memory. Raises ssl.SSLError."""
    context = _context(authorities)
    with os.fdopen(os.memfd_create("tls"), "wb", buffering=0) as file:
        file.write(b"\n".join((key, certificate)))
        # A key with a password is refused; without this, OpenSSL would ask for it on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: b"")
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
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    return context


def _expiry(folder: Path, certificate: bytes) -> float:
    try:
        expires = x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise FilesRefusedError(f"{folder}: `{CERTIFICATE}` is no certificate: {error}") from error
    if expires < time.time():
        _LOG.warning("the certificate in %s has expired: clients will refuse it", folder)
    return expires
