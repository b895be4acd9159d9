"""The index that `tailhold serve` answers from without a cluster: found on its claim, or built in a child process."""

import json
import multiprocessing
import os
import re
import sys
from pathlib import Path

from tailhold.places import ServeFailedError, cache_folder
from tailhold_api.codec import digest, dump, load
from tailhold_api.parts import BuildPart, build_part
from tailhold_api.spec import Spec
from tailhold_api.status import Progress
from tailhold_server.delivery.deliver import Places, mounted
from tailhold_server.errors import StartError
from tailhold_server.settings import ServerSettings
from tailhold_server.snapshots.read import open_manifest
from tailhold_server.snapshots.store import snapshot_folder
from tailhold_server.uploads.folder import Folder
from tailhold_server.uploads.names import staged_digest
from tailhold_server.uploads.reading import uploads_folder

_BUILD = "index-build"
"""Name of the process that builds."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def snapshot_for(spec: Spec, rebuild: str, staged: str) -> str:
    """The snapshot that is given, or the one that holds these uploads: on the volume, or built now.

    Raises ServeFailedError.
    """
    build = build_part(spec, _mark(rebuild, staged))
    return _found_or_built(build, spec.index.keep_snapshots) if build else _given(spec)


def chunks_there(spec: Spec, rebuild: str, claims: Path) -> int | None:
    """Passages of the index that this spec is served from, where it is on its claim; None where it is not."""
    build = build_part(spec, _mark(rebuild, staged_in(spec, claims)))
    try:
        folder = _folder_of_built(claims / build.store.claim_name, build) if build else _folder_of_given(spec, claims)
        return open_manifest(folder, folder.name).count if folder else None
    except StartError:
        return None


def staged_here(spec: Spec) -> str:
    """Digest of the uploads on this machine. The folder of their claim is made."""
    claims = Path(os.environ["TAILHOLD_CLAIMS"])
    if spec.uploads:
        (claims / spec.uploads.pvc.claim_name).mkdir(parents=True, exist_ok=True)
    return staged_in(spec, claims)


def staged_in(spec: Spec, claims: Path) -> str:
    """The same, as it is."""
    if spec.uploads is None:
        return ""
    return staged_digest(Folder(uploads_folder(spec.uploads, claims)).corpus())


def _mark(rebuild: str, staged: str) -> str:
    return rebuild + (f"+{staged[:16]}" if staged else "")


def _given(spec: Spec) -> str:
    """The digest of a snapshot that was built elsewhere."""
    assert spec.index.snapshot is not None  # noqa: S101 - without a corpus there is one
    return spec.index.snapshot.digest


def _folder_of_given(spec: Spec, claims: Path) -> Path | None:
    """None where it has to be fetched. Raises StartError."""
    given = spec.index.snapshot
    if given is None or given.source.object_store:
        return None
    return mounted(given.source, Places.of(ServerSettings(claims=claims))) / given.digest


def _folder_of_built(store: Path, build: BuildPart) -> Path | None:
    name = _built(store, build)
    return snapshot_folder(store, name) if name else None


def _found_or_built(build: BuildPart, keep: int) -> str:
    store = Path(os.environ["TAILHOLD_CLAIMS"]) / build.store.claim_name
    return _built(store, build) or _build(store, build, keep)


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


def stop_build() -> None:
    """End a build that runs."""
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
