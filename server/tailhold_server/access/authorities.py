"""Who may sign certificates of clients, and for how long that is believed of files that cannot be used any more.

An authority that is taken out must not go on for ever because the file that leaves it out is broken. So each
certificate of a bundle stands for itself: those that can be read are trusted, and nobody else. Where none can be read,
those of before hold for as long as keys do that cannot be read, and then no client is let in.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from tailhold_server.access.watched import FilesRefusedError, read_file

AUTHORITIES = "ca.crt"
"""The file of the bundle."""
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?(?:-----END CERTIFICATE-----|(?=-----BEGIN)|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Bundle:
    """What a bundle's file comes to."""

    pem: bytes
    """Of the certificates that can be read: at least one."""
    broken: tuple[int, ...] = ()
    """Which ones cannot, by their place in the file from 1 on."""

    @property
    def lacks(self) -> str:
        """What is wrong with it; empty for nothing."""
        if not self.broken:
            return ""
        which = ", ".join(map(str, self.broken))
        return f"`{AUTHORITIES}`: certificate {which} cannot be read, so clients of that authority are shut out"


def read_bundle(folder: Path) -> Bundle:
    """Raises FilesRefusedError where no certificate can be read; OSError."""
    return parse_bundle(_BLOCK.findall(read_file(folder / AUTHORITIES)))


def parse_bundle(blocks: Sequence[bytes]) -> Bundle:
    """Of the PEM blocks of a file. Raises FilesRefusedError where none can be read."""
    read = [_read(each) for each in blocks]
    whole = [each for each in read if each]
    if not whole:
        raise FilesRefusedError(f"`{AUTHORITIES}` holds no certificates of authorities that can be read")
    return Bundle(b"".join(whole), tuple(place for place, each in enumerate(read, 1) if not each))


def nobody() -> bytes:
    """An authority that can sign nothing: its key is thrown away. PEM."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    named = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    now = datetime.now(UTC)
    dated = named.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=2))
    return dated.not_valid_after(now - timedelta(days=1)).sign(key, SHA256()).public_bytes(Encoding.PEM)


def _read(block: bytes) -> bytes:
    """Empty where it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(block).public_bytes(Encoding.PEM)
    except ValueError:
        return b""
