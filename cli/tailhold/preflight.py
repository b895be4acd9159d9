"""What `tailhold serve` can know to be missing before it builds an index for minutes."""

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from tailhold.places import ServeFailedError
from tailhold_api.access import Oidc
from tailhold_api.sources import ModelSource
from tailhold_api.spec import Program, Spec
from tailhold_api.stand_in import is_stand_in, makes_vectors
from tailhold_server.access.access import open_access
from tailhold_server.access.authorities import AUTHORITIES
from tailhold_server.access.certificates import CERTIFICATE, KEY
from tailhold_server.access.oidc import Issuer, fetch
from tailhold_server.delivery.deliver import Places, mounted
from tailhold_server.errors import StartError
from tailhold_server.program import PortInUseError, bound
from tailhold_server.settings import ServerSettings
from tailhold_server.telemetry import Telemetry

_CONFIG = "config.json"


def check(spec: Spec, host: str, ports: Mapping[str, int], settings: ServerSettings) -> None:
    """Raises ServeFailedError with everything that is missing; `ports` are given by option.

    An issuer whose keys cannot be had stops no start: it is logged, as while serving.
    """
    found = [*_ports(spec, host, ports), *_keys(spec, settings), *_certificate(spec, settings)]
    found += _models(spec, Places.of(settings))
    if found:
        raise ServeFailedError("\n".join(found))
    if spec.server.auth and spec.server.auth.oidc:
        asyncio.run(_ask(spec.server.auth.oidc))


def _ports(spec: Spec, host: str, ports: Mapping[str, int]) -> Iterator[str]:
    taken: dict[int, str] = {}
    for option, port in ports.items():
        if option == "--grpc-port" and not spec.server.grpc.enabled:
            continue
        if (other := taken.setdefault(port, option)) != option:
            yield f"{option} {port}: that is {other} already: give each its own"
            continue
        try:
            bound(host, port).close()
        except PortInUseError as error:
            yield f"{option} {port}: {error}"


def _keys(spec: Spec, settings: ServerSettings) -> Iterator[str]:
    asked = spec.server.auth.api_keys if spec.server.auth else None
    if asked and (fault := _refused(spec.server.model_copy(update={"tls": None}), settings)):
        yield f"server.auth.apiKeys: {fault}\n{_how_to_make_a_key(settings.secrets / asked.secret_name)}"


def _certificate(spec: Spec, settings: ServerSettings) -> Iterator[str]:
    asked = spec.server.tls
    if asked and (fault := _refused(spec.server.model_copy(update={"auth": None}), settings)):
        authorities = settings.secrets / asked.client_ca_secret_name if asked.client_ca_secret_name else None
        yield f"server.tls: {fault}\n{_how_to_make_a_certificate(settings.secrets / asked.secret_name, authorities)}"


def _refused(program: Program, settings: ServerSettings) -> str:
    """Why a server could not begin with what its Secrets hold; empty where it can."""
    try:
        open_access(program, settings.secrets, Telemetry(), lambda _: "")
    except StartError as error:
        where = f"Secrets are folders of their names here, below {settings.secrets} (TAILHOLD_SECRETS names another)"
        return f"{error.message}. {where}."
    return ""


def _how_to_make_a_key(folder: Path) -> str:
    place, file = shlex.quote(str(folder)), shlex.quote(str(folder / "ada"))
    return (
        "Each file is a client, and holds its key. One for `ada`, and what she asks with:\n"
        f"  (umask 077; mkdir -p {place} && openssl rand -hex 24 > {file})\n"
        f"  export TAILHOLD_API_KEY=$(cat {file})"
    )


def _how_to_make_a_certificate(folder: Path, authorities: Path | None) -> str:
    place, key, certificate = (shlex.quote(str(each)) for each in (folder, folder / KEY, folder / CERTIFICATE))
    clients = f"\nThe authorities of your clients belong into {authorities / AUTHORITIES}" if authorities else ""
    return (
        "One to try it with on this machine, which nobody else trusts:\n"
        f"  (umask 077; mkdir -p {place} && openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost"
        f" -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {certificate}){clients}"
    )


def _read(spec: Spec) -> dict[str, ModelSource]:
    """Those that are loaded: a stand-in has none of its own."""
    generator = {} if is_stand_in(spec.pod.env) else {"generator": spec.generator.model}
    return generator | ({} if makes_vectors(spec.pod.env) else {"embedder": spec.embedder.model})


def _models(spec: Spec, places: Places) -> Iterator[str]:
    for field, source in _read(spec).items():
        if source.hugging_face or source.object_store:
            continue
        try:
            folder = mounted(source, places)
        except StartError as error:
            yield f"{field}.model: {error.message}. {_how_to_bring(source)}"
            continue
        if not (folder / _CONFIG).is_file():
            yield f"{field}.model: there is no {folder / _CONFIG}. {_how_to_bring(source)}"


def _how_to_bring(source: ModelSource) -> str:
    if source.pvc is None:
        return "Without a cluster name a claim, which is a folder here, or a hub or an object store"
    return (
        "Claims are folders of their names here (TAILHOLD_CLAIMS): put the model's files there; those of the example"
        " come with `python -m tailhold.demo`"
    )


async def _ask(oidc: Oidc) -> None:
    await Issuer(oidc, fetch, lambda _: None).refresh()
