"""What stands at the end of a start, apart from all that engines print: where to ask, and how."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailhold_api.spec import Program
from tailhold_server.access.certificates import CERTIFICATE, is_its_own_authority

QUESTION = "What are these documents about?"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  shown, not listened on
_HASHED = b"sha256:"


@dataclass(frozen=True)
class Listening:
    """Where a server listens."""

    host: str
    port: int
    internal_port: int
    grpc_port: int

    def at(self, port: int) -> str:
        """Host and port, as a client on this machine names them."""
        host = _EVERYWHERE.get(self.host, self.host)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def notice(name: str, program: Program, listening: Listening, secrets: Path) -> str:
    """Lines to read and to paste; no key is printed."""
    rows = {"ask": _ask_line(program, listening, secrets), "OpenAI": _url(program, listening)}
    if program.grpc.enabled:
        rows["gRPC"] = f"{listening.at(listening.grpc_port)}{' (TLS)' if program.tls else ''}"
    inside = "https" if program.is_internal_tls else "http"
    rows["metrics"] = f"{inside}://{listening.at(listening.internal_port)}/metrics"
    rows["stop"] = "Ctrl-C: what was accepted is answered first"
    return "\n".join(("", f"`{name}` is ready", *(f"  {title:<9}{row}" for title, row in rows.items()), ""))


def command() -> str:
    """How this program is called from the user's shell."""
    return "tailhold" if shutil.which("tailhold") else shlex.quote(sys.argv[0])


def _url(program: Program, listening: Listening) -> str:
    return f"{'https' if program.tls else 'http'}://{listening.at(listening.port)}/v1"


def _ask_line(program: Program, listening: Listening, secrets: Path) -> str:
    words = [command(), "ask", "--url", _url(program, listening), *_trusted(program, secrets)]
    return f'{"".join(_key(program, secrets))}{" ".join(words)} "{QUESTION}"'


def _trusted(program: Program, secrets: Path) -> Iterator[str]:
    """A certificate that is its own authority is known to nobody."""
    if program.tls is None:
        return
    file = secrets / program.tls.secret_name / CERTIFICATE
    with suppress(OSError, ValueError):
        if is_its_own_authority(file):
            yield from ("--ca-file", shlex.quote(str(file)))


def _key(program: Program, secrets: Path) -> Iterator[str]:
    if program.auth is None:
        return
    keys = program.auth.api_keys
    plain = _plain_keys(secrets / keys.secret_name) if keys else []
    yield f"TAILHOLD_API_KEY=$(cat {shlex.quote(str(plain[0]))}) " if plain else "TAILHOLD_API_KEY=... "


def _plain_keys(folder: Path) -> list[Path]:
    """Files that hold a key itself, not its hash."""
    with suppress(OSError):
        return [
            each for each in sorted(folder.iterdir()) if each.is_file() and not each.read_bytes().startswith(_HASHED)
        ]
    return []
