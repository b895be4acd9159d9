"""`tailhold serve`: the serving program, in a pod or from a manifest without a cluster."""

import logging
import os
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from tailhold.given import text_given
from tailhold.local_index import snapshot_for, staged_here, stop_build
from tailhold.manifest import ManifestError, lines_of, read_manifest
from tailhold.places import ServeFailedError, here
from tailhold.terminal import run_apart
from tailhold_api import names
from tailhold_api.codec import load
from tailhold_api.observability import LogLevel, Otlp
from tailhold_api.parts import ContentPart, PodPart, content_part, pod_part
from tailhold_api.spec import Spec

if TYPE_CHECKING:
    from tailhold_server.refresh import Refresh

Parsed = TypeVar("Parsed", bound=BaseModel)

Ports = tuple[str, int, int, int]
"""Host, and the ports for clients, for probes, and for clients of gRPC."""
_OPTIONS = ("--port", "--internal-port", "--grpc-port")


def serve(
    manifest: Path | None = None,
    pod: Path | None = None,
    content: Path | None = None,
    host: str = "0.0.0.0",  # noqa: S104  a pod is reached from outside
    port: int = names.HTTP_PORT,
    internal_port: int = names.INTERNAL_PORT,
    grpc_port: int = names.GRPC_PORT,
    otlp: str | None = None,
) -> int:
    """Serve until stopped and return the exit code: 2 where trying again cannot help.

    With `manifest` no cluster is needed: its index is built first where the volume has none. Without it,
    `pod` and `content` are read, by default where a pod has them. Traces go to `otlp`, a collector's URL, where the
    spec names another. Raises ServeFailedError.
    """
    if otlp is not None:
        os.environ["TAILHOLD_OTLP_ENDPOINT"] = _collector(otlp)
    address = (host, port, internal_port, grpc_port)
    if manifest is not None:
        made = _from_manifest(manifest, address)
        serving = partial(_run, made.pod, made.content, address, made)
        return run_apart(serving) if os.isatty(0) else serving()
    if pod is None and content is None and not Path(names.POD_PART_PATH).exists():
        raise ServeFailedError("name a manifest, as in `tailhold serve examples/ragpipeline.yaml`")
    trust_given(os.environ)
    parts = (
        _read(PodPart, pod or Path(names.POD_PART_PATH)),
        _read(ContentPart, content or Path(names.CONTENT_PATH)),
    )
    return _run(*parts, address)


def _collector(url: str) -> str:
    try:
        return Otlp(endpoint=url).endpoint
    except ValidationError:
        raise ServeFailedError(f"--otlp {url}: give the URL of a collector, as http://127.0.0.1:4318") from None


def _read(kind: type[Parsed], path: Path) -> Parsed:
    return _load(kind, text_given(path), str(path))


def _load(kind: type[Parsed], text: str, where: str) -> Parsed:
    try:
        return load(kind, text)
    except ValidationError as error:
        raise ServeFailedError("\n".join(lines_of(error, where, kind))) from None


@dataclass(frozen=True)
class _Made:
    """What a manifest is served from. It goes to a process of its own where a terminal is attached."""

    name: str
    spec: Spec
    rebuild: str
    content: ContentPart
    built: str
    """Digest of the uploads that are in its index."""

    @property
    def pod(self) -> PodPart:
        return pod_part(self.name, self.spec)

    def build(self, staged: str) -> ContentPart | None:
        """Another index, with the uploads of this digest."""
        try:
            return content_part(self.spec, snapshot_for(self.spec, self.rebuild, staged))
        except ServeFailedError as error:
            print(error, file=sys.stderr)
            return None


def _from_manifest(path: Path, address: Ports) -> _Made:
    from tailhold.preflight import check
    from tailhold_server.settings import ServerSettings

    try:
        manifest = read_manifest(path)
    except ManifestError as error:
        raise ServeFailedError(str(error)) from None
    spec = manifest.spec
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # a bar for loading weights says nothing of ours
    here(os.environ)
    trust_given(os.environ)
    check(spec, address[0], dict(zip(_OPTIONS, address[1:], strict=True)), ServerSettings())
    staged = staged_here(spec)
    content = content_part(spec, snapshot_for(spec, manifest.rebuild, staged))
    return _Made(manifest.name, spec, manifest.rebuild, content, staged)


def trust_given(env: MutableMapping[str, str]) -> None:
    """The company's authorities are trusted by all that fetches. Raises ServeFailedError."""
    from tailhold_server.delivery.trust import trust
    from tailhold_server.errors import StartError

    try:
        trust(env)
    except StartError as error:
        raise ServeFailedError(error.message) from None


def _refresh(made: _Made | None) -> "Refresh | None":
    from tailhold_server.refresh import Refresh

    if made is None or made.spec.corpus is None or made.spec.uploads is None:
        return None
    return Refresh(made.build, stop_build, made.spec.corpus.min_rebuild_seconds, made.built)


def _announce(made: _Made, address: Ports) -> None:
    """On standard output, and last."""
    from tailhold.notice import Listening, notice

    secrets = Path(os.environ["TAILHOLD_SECRETS"])
    print(notice(made.name, made.spec.server, Listening(*address), secrets), flush=True)


def _run(pod: PodPart, content: ContentPart, address: Ports, made: _Made | None = None) -> int:
    from tailhold_server.logs import configure
    from tailhold_server.program import Address, PortInUseError, run
    from tailhold_server.settings import ServerSettings

    levels = {LogLevel.DEBUG: logging.DEBUG, LogLevel.INFO: logging.INFO, LogLevel.WARNING: logging.WARNING}
    configure(levels[pod.observability.log_level])
    announce = partial(_announce, made, address) if made else lambda: None
    promised = made.spec.slo.objectives if made else ()
    try:
        return run(pod, content, ServerSettings(), Address(*address), _refresh(made), announce, promised)
    except PortInUseError as error:
        raise ServeFailedError(str(error)) from error
