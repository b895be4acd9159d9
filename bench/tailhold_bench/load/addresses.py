"""Where a load may go: to this machine and private networks, elsewhere only when the user says that it is theirs."""

import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tailhold_bench.load.errors import LoadError

OWN_TARGET = "--this-target-is-mine"
_FORMS = "http://HOST:PORT/v1 or https://HOST:PORT/v1, or grpc://HOST:PORT or grpcs://HOST:PORT (with TLS)"
_TLS = ("https", "grpcs")
_GRPC = ("grpc", "grpcs")


@dataclass(frozen=True)
class Endpoint:
    """A server's address, looked up once: a name that changes its mind cannot turn a load elsewhere."""

    host: str
    address: str
    port: int
    is_tls: bool
    path: str
    is_grpc: bool = False

    @property
    def host_header(self) -> str:
        """As HTTP wants it."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == (443 if self.is_tls else 80) else f"{name}:{self.port}"


def endpoint(url: str, *, is_own: bool) -> Endpoint:
    """Read and look up a URL that ends in /v1, or one of gRPC. Raises LoadError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LoadError(f"--url {url!r}: {error}") from None
    if parts.scheme not in ("http", "https", *_GRPC) or not parts.hostname:
        raise LoadError(f"--url {url!r}: write {_FORMS}")
    if parts.username or parts.query or parts.fragment:
        raise LoadError(f"--url {url!r}: no user, query or fragment; keys go into --api-key")
    is_tls, is_grpc = parts.scheme in _TLS, parts.scheme in _GRPC
    if is_grpc and (port is None or parts.path.strip("/")):
        raise LoadError(f"--url {url!r}: a gRPC server has a port and no path: write {parts.scheme}://HOST:PORT")
    port = port or (443 if is_tls else 80)
    addresses = _looked_up(url, parts.hostname, port)
    far = [each for each in addresses if not is_near(each)]
    if far and not is_own:
        raise LoadError(
            f"--url {url!r}: {far[0]} is neither this machine nor a private network. A load test of somebody else's "
            f"server is an attack; if it is yours, say so with {OWN_TARGET}"
        )
    return Endpoint(parts.hostname, _listening(addresses, port), port, is_tls, parts.path.rstrip("/"), is_grpc)


def is_near(address: str) -> bool:
    """Whether it is loopback, link-local or of a private network."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (ip.is_loopback or ip.is_link_local or ip.is_private) and not ip.is_unspecified


def _looked_up(url: str, host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LoadError(f"--url {url!r}: no address for {host!r}: {error}") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _listening(addresses: list[str], port: int) -> str:
    """Of several, as `localhost` has, the first that takes a connection."""
    for address in addresses if len(addresses) > 1 else ():
        with suppress(OSError), socket.create_connection((address, port), timeout=2):
            return address
    return addresses[0]
