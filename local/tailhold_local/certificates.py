"""Makes the cluster's own authority, certificates and kubeconfigs."""

import base64
import datetime
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)

_SIGNING = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Subject:
    """Whom a certificate names, and the addresses it serves at."""

    file: str
    user: str
    group: str = ""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Authority:
    """The key and certificate that sign all others of one cluster."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @staticmethod
    def create(folder: Path) -> "Authority":
        """Make an authority and write it to `folder`."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(Subject("ca", "tailhold-local"))
        builder = (
            _builder(name, name, key, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNING, critical=True)
        )
        authority = Authority(folder, key, builder.sign(key, hashes.SHA256()))
        _write(folder, "ca", key, authority.certificate)
        return authority

    def issue(self, subject: Subject) -> None:
        """Write a key and certificate for `subject`, good for serving and as a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
        builder = _builder(_name(subject), self.certificate.subject, key, self.key)
        builder = builder.add_extension(usage, critical=False)
        if subject.addresses:
            builder = builder.add_extension(_alternatives(subject.addresses), critical=False)
        _write(self.folder, subject.file, key, builder.sign(self.key, hashes.SHA256()))


def write_service_account_keys(folder: Path) -> None:
    """Write the key pair that signs the tokens of service accounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_private(folder / "service-accounts.key", _pem(key))
    (folder / "service-accounts.pub").write_bytes(public)


def kubeconfig(server: str, pki: Path, subject_file: str) -> str:
    """A kubeconfig, whole in itself, for the holder of a certificate in `pki`; JSON, which is YAML too."""
    cluster = {"server": server, "certificate-authority-data": _encoded(pki / "ca.crt")}
    user = {
        "client-certificate-data": _encoded(pki / f"{subject_file}.crt"),
        "client-key-data": _encoded(pki / f"{subject_file}.key"),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tailhold",
        "contexts": [{"name": "tailhold", "context": {"cluster": "tailhold", "user": subject_file}}],
        "clusters": [{"name": "tailhold", "cluster": cluster}],
        "users": [{"name": subject_file, "user": user}],
    }
    return json.dumps(content, indent=2) + "\n"


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _name(subject: Subject) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, subject.user)]
    if subject.group:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.group))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signed_by, critical=False)
    )


def _alternatives(addresses: tuple[str, ...]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(address) for address in addresses])


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(folder: Path, file: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_private(folder / f"{file}.key", _pem(key))
    (folder / f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
