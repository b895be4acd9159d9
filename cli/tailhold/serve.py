"""`tailhold serve`: the serving program, in a pod or from a manifest without a cluster."""

import json
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from tailhold.manifest import ManifestError, lines_of, read_manifest
from tailhold.terminal import run_apart
from tailhold_api import names
from tailhold_api.codec import digest, dump, load
from tailhold_api.observability import LogLevel, Otlp
from tailhold_api.parts import BuildPart, ContentPart, PodPart, build_part, content_part, pod_part
from tailhold_api.spec import Spec
from tailhold_api.status import Progress

if TYPE_CHECKING:
    from tailhold_server.refresh import Refresh

Parsed = TypeVar("Parsed", bound=BaseModel)

_BUILD = "index-build"
"""Name of the process that builds."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ServeFailedError(Exception):
    """Why the server cannot be started; the text is for the user."""


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
        made = _from_manifest(manifest)
        serving = partial(_run, made.pod, made.content, address, made.refreshed)
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
    try:
        text = path.read_text()
    except OSError as error:
        raise ServeFailedError(f"{path} cannot be read: {error.strerror}") from error
    return _load(kind, text, str(path))


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

    @property
    def refreshed(self) -> "_Made | None":
        """How to build for uploads, where there are any to come."""
        return self if self.spec.uploads else None

    def build(self, staged: str) -> ContentPart | None:
        """Another index, with the uploads of this digest."""
        try:
            return content_part(self.spec, _snapshot(self.spec, self.rebuild, staged))
        except ServeFailedError as error:
            print(error, file=sys.stderr)
            return None


def _from_manifest(path: Path) -> _Made:
    try:
        manifest = read_manifest(path)
    except ManifestError as error:
        raise ServeFailedError(str(error)) from None
    spec = manifest.spec
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # a bar for loading weights says nothing of ours
    here(os.environ)
    trust_given(os.environ)
    os.environ.setdefault("TAILHOLD_SECRETS", str(cache_folder() / "secrets"))
    staged = _staged(spec)
    content = content_part(spec, _snapshot(spec, manifest.rebuild, staged))
    return _Made(manifest.name, spec, manifest.rebuild, content, staged)


def _snapshot(spec: Spec, rebuild: str, staged: str) -> str:
    """The snapshot that is given, or the one that holds these uploads: on the volume, or built now."""
    build = build_part(spec, rebuild + (f"+{staged[:16]}" if staged else ""))
    return _found_or_built(build, spec.index.keep_snapshots) if build else _given(spec)


def _staged(spec: Spec) -> str:
    """Digest of the uploads on this machine. The folder of their claim is made."""
    from tailhold_server.uploads.folder import Folder
    from tailhold_server.uploads.names import staged_digest
    from tailhold_server.uploads.reading import uploads_folder

    if spec.corpus is None or spec.corpus.uploads is None:
        return ""
    claims = Path(os.environ["TAILHOLD_CLAIMS"])
    (claims / spec.corpus.uploads.pvc.claim_name).mkdir(parents=True, exist_ok=True)
    return staged_digest(Folder(uploads_folder(spec.corpus.uploads, claims)).corpus())


def here(env: MutableMapping[str, str]) -> None:
    """Where claims lie and files are fetched to without a cluster."""
    env.setdefault("TAILHOLD_CLAIMS", str(cache_folder() / "claims"))
    env.setdefault("TAILHOLD_FETCHED", str(cache_folder() / "fetched"))
    env.setdefault("TAILHOLD_TRUST_BUNDLE", str(cache_folder() / "trust.pem"))


def trust_given(env: MutableMapping[str, str]) -> None:
    """The company's authorities are trusted by all that fetches. Raises ServeFailedError."""
    from tailhold_server.delivery.trust import trust
    from tailhold_server.errors import StartError

    try:
        trust(env)
    except StartError as error:
        raise ServeFailedError(error.message) from None


def _given(spec: Spec) -> str:
    """The digest of a snapshot that was built elsewhere."""
    assert spec.index.snapshot is not None  # noqa: S101 - without a corpus there is one
    return spec.index.snapshot.digest


def _found_or_built(build: BuildPart, keep: int) -> str:
    store = Path(os.environ["TAILHOLD_CLAIMS"]) / build.store.claim_name
    return _built(store, build) or _build(store, build, keep)


def cache_folder() -> Path:
    """Where claims lie without a cluster."""
    if given := os.environ.get("TAILHOLD_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tailhold"


def _built(store: Path, build: BuildPart) -> str | None:
    """The snapshot that this build part gave, if it is on the volume."""
    pointer = store / "builds" / f"{digest(build)}.json"
    try:
        snapshot = json.loads(pointer.read_text()).get("snapshot")
    except (OSError, ValueError, AttributeError):
        return None
    if not isinstance(snapshot, str) or not _DIGEST.fullmatch(snapshot):
        return None
    return snapshot if (store / "snapshots" / snapshot).is_dir() else None


def _build(store: Path, build: BuildPart, keep: int) -> str:
    """Build in a child process: its memory is free before the engine takes its own."""
    print(f"no such index at {store} yet: building it", file=sys.stderr, flush=True)
    config_maps = os.environ.setdefault("TAILHOLD_CONFIG_MAPS", str(cache_folder() / "configmaps"))
    child = multiprocessing.get_context("spawn").Process(
        target=build_in_child, args=(dump(build), str(store.parent), config_maps, keep), name=_BUILD, daemon=True
    )
    child.start()
    child.join()
    snapshot = _built(store, build) if child.exitcode == 0 else None
    if snapshot is None:
        raise ServeFailedError("the index was not built, see above")
    return snapshot


def _stop_build() -> None:
    for child in multiprocessing.active_children():
        if child.name == _BUILD:
            child.terminate()


def build_in_child(build: str, claims: str, config_maps: str, keep: int) -> None:
    """What the child does; it says how far it is on standard error and ends with 1 if there is no index."""
    from tailhold_server.errors import StartError
    from tailhold_server.ingest.build import build as build_index

    try:
        report = build_index(
            load(BuildPart, build),
            claims=Path(claims),
            config_maps=Path(config_maps),
            progress=_Teller().tell,
            keep=keep,
        )
    except StartError as error:
        print(f"{error.reason}: {error.message}", file=sys.stderr)
        raise SystemExit(1) from None
    print(f"index of {report.chunks} chunks from {report.documents} documents", file=sys.stderr)


class _Teller:
    """Prints each step once, when it begins."""

    def __init__(self) -> None:
        self._step = ""

    def tell(self, progress: Progress) -> None:
        """Called for each bit of progress."""
        if progress.step != self._step:
            self._step = progress.step
            print(progress.step, file=sys.stderr, flush=True)


def _refresh(made: _Made | None) -> "Refresh | None":
    from tailhold_server.refresh import Refresh

    if made is None or made.spec.corpus is None:
        return None
    return Refresh(made.build, _stop_build, made.spec.corpus.min_rebuild_seconds, made.built)


def _run(pod: PodPart, content: ContentPart, address: tuple[str, int, int, int], made: _Made | None = None) -> int:
    from tailhold_server.logs import configure
    from tailhold_server.program import Address, PortInUseError, run
    from tailhold_server.settings import ServerSettings

    levels = {LogLevel.DEBUG: logging.DEBUG, LogLevel.INFO: logging.INFO, LogLevel.WARNING: logging.WARNING}
    configure(levels[pod.observability.log_level])
    try:
        refresh = _refresh(made)
        return run(pod, content, ServerSettings(), Address(*address), refresh)
    except PortInUseError as error:
        raise ServeFailedError(str(error)) from error
