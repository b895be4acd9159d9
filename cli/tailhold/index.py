"""`tailhold index`: build and verify snapshots. Searching is for the demo and the tests."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailhold.ending import failed, succeeded, write_ending
from tailhold.given import GivenError, read_given
from tailhold.watching import Board, Lines, serve_progress
from tailhold_api import names
from tailhold_api.codec import load
from tailhold_api.conditions import Reason
from tailhold_api.parts import BuildPart
from tailhold_api.serving import Embedder
from tailhold_api.sources import ModelSource
from tailhold_server import backends
from tailhold_server.delivery.trust import trust
from tailhold_server.errors import StartError
from tailhold_server.ingest.build import KEEP
from tailhold_server.ingest.build import build as build_snapshot
from tailhold_server.ingest.report import BuildReport
from tailhold_server.ports import ChunkSource
from tailhold_server.snapshots import SnapshotRefused, open_snapshot, snapshot_folder
from tailhold_server.snapshots.store import LOCAL, newest

PINNED = "TAILHOLD_PINNED_SNAPSHOTS"
"""Digests, apart by blanks, that the build must not delete: what serves, and what a rollback needs."""
KEPT = "TAILHOLD_KEEP_SNAPSHOTS"
"""How many snapshots before the new one stay."""
PIPELINE = "TAILHOLD_PIPELINE"
"""Namespace and name of the pipeline that the build is for: the owner of its snapshots."""


@dataclass(frozen=True)
class Hit:
    """A chunk that was found."""

    score: float
    source: ChunkSource
    text: str


def build(
    build_file: Path = Path(names.BUILD_PATH),
    progress_port: int | None = names.INTERNAL_PORT,
    env: Mapping[str, str] = os.environ,
) -> int:
    """Build from a BuildPart. Returns the exit code: 0 well, 1 try again, 2 trying again cannot help.

    The ending goes to the termination log, progress to standard output and, with a port, to `GET /progress`.
    """
    try:
        with ExitStack() as stack:
            stack.enter_context(_ended_by_sigterm())
            trust()
            board = stack.enter_context(_board(progress_port))
            lines = stack.enter_context(Lines(sys.stdout))
            report = _build(build_file, env, board, lines)
    except StartError as error:
        return _fail(env, error.reason, error.message, final=error.final)
    except OSError as error:
        return _fail(env, Reason.INDEX_BUILD_FAILED, str(error), final=False)
    except Exception as error:
        _fail(env, Reason.INDEX_BUILD_FAILED, f"{type(error).__name__}: {error}", final=False)
        raise
    _show(report)
    write_ending(env, succeeded(report))
    return 0


def verify(folder: Path) -> int:
    """Prove that a snapshot is what its folder's name says, and print its facts. Returns the exit code."""
    try:
        manifest = open_snapshot(folder, folder.resolve().name).manifest
    except StartError as error:
        print(error.message, file=sys.stderr)
        return 1
    facts = manifest.model_dump(mode="json", by_alias=True, exclude={"files"})
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    return 0


def search(store: Path, question: str, embedder: Path, *, digest: str = "", k: int = 5) -> list[Hit]:
    """The best k chunks, in the newest snapshot where no digest is given. Raises StartError."""
    return Finder(store, embedder, digest=digest).search(question, k)


def searcher(store: Path, digest: str, embedder: Path) -> Callable[[str, int], list[str]]:
    """A search that gives the documents of the best k chunks: what the hit rate is measured with."""
    finder = Finder(store, embedder, digest=digest)
    return lambda question, k: [hit.source.document for hit in finder.search(question, k)]


class Finder:
    """Searches one snapshot with many questions: the model is loaded once."""

    def __init__(self, store: Path, embedder: Path, *, digest: str = "", query_prefix: str = "") -> None:
        from tailhold_server.adapters.encoder import load_encoder

        name = digest or next(newest(store), "")
        if not name:
            raise SnapshotRefused(f"no snapshot in {store}: run `tailhold index build`")
        snapshot = open_snapshot(snapshot_folder(store, name), name)
        model = ModelSource(path=str(embedder.resolve()))
        settings = Embedder(model=model, dimension=snapshot.manifest.dimension, max_tokens=512)
        self._encoder = load_encoder(embedder, settings)
        if self._encoder.fingerprint != snapshot.manifest.embedder:
            raise SnapshotRefused(f"snapshot {name} was made by another embedder than {embedder}")
        self._searcher = backends.searcher(snapshot)
        self._chunks = snapshot.chunks
        self._query_prefix = query_prefix

    def search(self, question: str, k: int = 5) -> list[Hit]:
        """The best chunks, best first; fewer than k where the snapshot has fewer."""
        scores, ids = self._searcher.search(self._encoder.encode([self._query_prefix + question]), k)
        found = zip(scores[0].tolist(), ids[0].tolist(), strict=True)
        return [Hit(score, self._chunks.source(i), self._chunks.text(i)) for score, i in found if i >= 0]


def _build(build_file: Path, env: Mapping[str, str], board: Board, lines: Lines) -> BuildReport:
    def tell(progress: Any) -> None:
        board.show(progress)
        lines.show(progress)

    return build_snapshot(
        _read_part(build_file),
        claims=Path(env.get("TAILHOLD_CLAIMS") or names.CLAIMS_FOLDER),
        config_maps=Path(env.get("TAILHOLD_CONFIG_MAPS") or names.CONFIG_MAPS_FOLDER),
        progress=tell,
        keep=_kept(env),
        pinned=env.get(PINNED, "").split(),
        owner=env.get(PIPELINE) or LOCAL,
    )


def _kept(env: Mapping[str, str]) -> int:
    said = env.get(KEPT) or str(KEEP)
    if not said.isdecimal():
        raise StartError(Reason.INVALID_SPEC, f"{KEPT} is {said!r}: give a number of snapshots")
    return int(said)


def _read_part(path: Path) -> BuildPart:
    try:
        return load(BuildPart, read_given(path))
    except GivenError as error:
        raise StartError(Reason.INVALID_SPEC, str(error), final=False) from error
    except ValidationError as error:
        raise StartError(Reason.INVALID_SPEC, f"{path}: {error}") from error


def _show(report: BuildReport) -> None:
    for each in report.failures:
        print(f"  failed: {each.path}: {each.reason}: {each.hint}")
    if report.recall_questions:
        print(f"recall of the best ten: {report.recall:.4f}, measured with {report.recall_questions} chunks")
    print(
        f"snapshot {report.snapshot}: {report.documents} documents, {report.failed_documents} failed, "
        f"{report.chunks} chunks, {report.reused} of them reused, "
        f"{report.deleted_documents} documents deleted; "
        + ", ".join(f"{step} {seconds:.1f} s" for step, seconds in report.seconds.items()),
        flush=True,
    )


def _fail(env: Mapping[str, str], reason: Reason, message: str, *, final: bool) -> int:
    print(f"{reason}: {message}", file=sys.stderr, flush=True)
    write_ending(env, failed(reason, message))
    return 2 if final else 1


def _board(port: int | None) -> AbstractContextManager[Board]:
    return nullcontext(Board()) if port is None else serve_progress(port)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    # The first process of a container ignores SIGTERM unless it says otherwise.
    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
