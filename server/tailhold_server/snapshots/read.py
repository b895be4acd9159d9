"""Opens a snapshot: name, sizes and hashes are proved before a byte is given a meaning."""

import hashlib
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from tailhold_api.codec import load
from tailhold_server.ports import ChunkSource
from tailhold_server.snapshots import manifest as names
from tailhold_server.snapshots.arrays import check_finite, check_offsets, check_range, floats, ints, longs, refused
from tailhold_server.snapshots.contents import DOCUMENTS, Document
from tailhold_server.snapshots.manifest import Manifest, SnapshotRefused, StoredFile
from tailhold_server.snapshots.structure import Structure, read_structure, structure_sizes

_BLOCK = 1 << 20


class StoredChunks:
    """The chunks of a snapshot, read from the mapped files. Every index was proved to be in range."""

    def __init__(
        self, files: Mapping[str, memoryview], documents: Sequence[Document], gone: frozenset[int] = frozenset()
    ) -> None:
        self._files = files
        self._texts = files[names.TEXTS]
        self._text_offsets = longs(files[names.TEXT_OFFSETS])
        self._tokens = ints(files[names.TOKENS])
        self._token_offsets = longs(files[names.TOKEN_OFFSETS])
        self._places = longs(files[names.PLACES]).reshape(-1, names.PLACE_COLUMNS)
        self._place_offsets = longs(files[names.PLACE_OFFSETS])
        self._passages = files[names.PASSAGES]
        self._documents = documents
        self._gone = gone
        self._first, self._live = self._cited()
        self._document_of = np.ascontiguousarray(self._places[self._first, 0])

    @property
    def documents(self) -> Sequence[Document]:
        """All documents, in the order of reading."""
        return self._documents

    @property
    def document_of(self) -> NDArray[np.int64]:
        """For each chunk the document of its first place that is not deleted."""
        return self._document_of

    @property
    def gone(self) -> frozenset[int]:
        """Places of the documents that are deleted."""
        return self._gone

    @property
    def live(self) -> NDArray[np.bool_] | None:
        """For each chunk whether it stands in any document that is not deleted; None where all do."""
        return None if self._live.all() else self._live

    def without(self, gone: frozenset[int]) -> "StoredChunks":
        """The same with just these documents deleted."""
        return StoredChunks(self._files, self._documents, gone)

    def __len__(self) -> int:
        return len(self._text_offsets) - 1

    def text(self, index: int) -> str:
        """What was read from the document."""
        self._check_live(index)
        start, end = self._bounds(self._text_offsets, index)
        return str(self._texts[start:end], "utf-8")

    def token_ids(self, index: int) -> Sequence[int]:
        """The text by the generator's tokenizer, without special tokens."""
        self._check_live(index)
        start, end = self._bounds(self._token_offsets, index)
        ids: list[int] = self._tokens[start:end].tolist()
        return ids

    def source(self, index: int) -> ChunkSource:
        """Where it comes from; of several places, the first that was read."""
        text = self.text(index)
        return self._source(self._places[self._first[index]].tolist(), text)

    def sources(self, index: int) -> tuple[ChunkSource, ...]:
        """Every place at which this very text stands, in the order of reading."""
        text = self.text(index)
        start, end = self._bounds(self._place_offsets, index)
        places = self._places[start:end].tolist()
        return tuple(self._source(place, text) for place in places if place[0] not in self._gone)

    def document_beside(self, closed: frozenset[str]) -> NDArray[np.int64]:
        """For each chunk the document of its first place beside these corpus sources; -1 where there is none."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        is_open = np.array([each.source not in closed for each in self._documents], dtype=np.bool_)
        is_open[list(self._gone)] = False
        documents, count = self._places[:, 0], len(self._places)
        places = np.where(is_open[documents], np.arange(count), count)
        # Every chunk has a place, as was proved: no segment is empty.
        first = np.minimum.reduceat(places, self._place_offsets[:-1])
        found: NDArray[np.int64] = np.append(documents, -1)[first]
        return found

    def passage(self, index: int) -> bytes:
        """SHA-256 of what was embedded."""
        self._bounds(self._text_offsets, index)
        at = index * names.PASSAGE_BYTES
        return bytes(self._passages[at : at + names.PASSAGE_BYTES])

    def _source(self, place: Sequence[int], text: str) -> ChunkSource:
        document, start, end = place
        source, path, title, url, _ = self._documents[document]
        key = hashlib.sha256("\0".join((source, path, str(start), text)).encode()).hexdigest()
        return ChunkSource(key=key, source=source, document=path, title=title, url=url, start=start, end=end)

    def _cited(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The place that is cited for each chunk, and whether there is one left. Each has a place, as was proved."""
        firsts = self._place_offsets[:-1]
        if not self._gone:
            return firsts, np.ones(len(self), dtype=np.bool_)
        kept = ~np.isin(self._places[:, 0], list(self._gone))
        living = np.minimum.reduceat(np.where(kept, np.arange(len(kept)), len(kept)), firsts)
        return np.where(living < len(kept), living, firsts), living < len(kept)

    def _check_live(self, index: int) -> None:
        if 0 <= index < len(self) and not self._live[index]:
            raise IndexError(f"chunk {index} stands in deleted documents alone")

    def _bounds(self, offsets: NDArray[np.int64], index: int) -> tuple[int, int]:
        # -1 is how searchers say "nothing": it must never be the last chunk.
        if not 0 <= index < len(self):
            raise IndexError(f"chunk {index} of {len(self)}")
        return int(offsets[index]), int(offsets[index + 1])


@dataclass(frozen=True)
class Snapshot:
    """A verified snapshot."""

    manifest: Manifest
    vectors: NDArray[np.float32]
    """Mapped read-only from the volume."""
    chunks: StoredChunks
    structure: Structure
    """What a search walks through; None where it compares with every vector."""


def open_snapshot(folder: Path, digest: str) -> Snapshot:
    """Verify and map the snapshot in `folder`. Whatever lies there, only SnapshotRefused is raised."""
    try:
        return _open(folder, digest)
    except OSError as error:
        raise SnapshotRefused(f"snapshot {digest} at {folder}: cannot be read: {error.strerror}") from error


def open_manifest(folder: Path, digest: str) -> Manifest:
    """The verified manifest, and nothing else. Raises SnapshotRefused."""
    try:
        return _manifest(folder / names.MANIFEST, digest)
    except OSError as error:
        raise SnapshotRefused(f"snapshot {digest} at {folder}: cannot be read: {error.strerror}") from error


def open_documents(folder: Path, digest: str) -> list[Document]:
    """The verified documents, and nothing else: not even a damaged vector hides them. Raises SnapshotRefused."""
    try:
        manifest = _manifest(folder / names.MANIFEST, digest)
        path = folder / names.DOCUMENTS
        return _documents(path, _verified(path, manifest.files[names.DOCUMENTS]))
    except OSError as error:
        raise SnapshotRefused(f"snapshot {digest} at {folder}: cannot be read: {error.strerror}") from error


def _open(folder: Path, digest: str) -> Snapshot:
    manifest = _manifest(folder / names.MANIFEST, digest)
    _check_sizes(folder, manifest)
    files = {name: _verified(folder / name, fact) for name, fact in manifest.files.items()}
    vectors = floats(files[names.VECTORS]).reshape(manifest.count, manifest.dimension)
    documents = _documents(folder / names.DOCUMENTS, files[names.DOCUMENTS])
    _check_contents(folder, files, vectors, documents, manifest)
    return Snapshot(manifest, vectors, StoredChunks(files, documents), read_structure(folder, files, manifest))


def _manifest(path: Path, digest: str) -> Manifest:
    handle, size = _open_file(path)
    with os.fdopen(handle, "rb") as file:
        if size > names.MANIFEST_BYTES:
            raise refused(path, f"at most {names.MANIFEST_BYTES} bytes", size)
        text = file.read()
    if (got := hashlib.sha256(text).hexdigest()) != digest:
        raise refused(path, f"sha256 {digest}", got)
    try:
        manifest = load(Manifest, text)
    except ValidationError as error:
        first = error.errors()[0]
        raise refused(path, "a manifest of format 1", f"{first['loc']}: {first['msg']}") from error
    expected = sorted((*names.FILES, *names.INDEX_FILES.get(manifest.kind, ())))
    if (listed := sorted(manifest.files)) != expected:
        raise refused(path, f"the files {expected}", listed)
    return manifest


def _check_sizes(folder: Path, manifest: Manifest) -> None:
    count = manifest.count
    wanted = {
        names.VECTORS: 4 * count * manifest.dimension,
        names.TEXT_OFFSETS: 8 * (count + 1),
        names.TOKEN_OFFSETS: 8 * (count + 1),
        names.PLACE_OFFSETS: 8 * (count + 1),
        names.PASSAGES: names.PASSAGE_BYTES * count,
        **structure_sizes(manifest),
    }
    units = {names.TOKENS: 4, names.PLACES: 8 * names.PLACE_COLUMNS, names.LINKS: 4}
    for name, size in wanted.items():
        if manifest.files[name].bytes != size:
            raise refused(folder / name, f"{size} bytes", manifest.files[name].bytes)
    for name, unit in units.items():
        if name in manifest.files and manifest.files[name].bytes % unit:
            raise refused(folder / name, f"a multiple of {unit} bytes", manifest.files[name].bytes)


def _verified(path: Path, fact: StoredFile) -> memoryview:
    handle, size = _open_file(path)
    try:
        if size != fact.bytes:
            raise refused(path, f"{fact.bytes} bytes", size)
        data = memoryview(mmap.mmap(handle, size, prot=mmap.PROT_READ) if size else b"")
    finally:
        os.close(handle)
    total = hashlib.sha256()
    for start in range(0, size, _BLOCK):
        total.update(data[start : start + _BLOCK])
    if (got := total.hexdigest()) != fact.sha256:
        raise refused(path, f"sha256 {fact.sha256}", got)
    return data


def _open_file(path: Path) -> tuple[int, int]:
    # A link could lead anywhere, and opening a pipe would wait for ever.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise refused(path, "a plain file", stat.filemode(facts.st_mode))
    return handle, facts.st_size


def _documents(path: Path, data: memoryview) -> list[Document]:
    try:
        return DOCUMENTS.validate_json(bytes(data), strict=True)
    except ValidationError as error:
        raise refused(path, "documents", error.errors()[0]["msg"]) from error


def _check_contents(
    folder: Path,
    files: Mapping[str, memoryview],
    vectors: NDArray[np.float32],
    documents: Sequence[Document],
    manifest: Manifest,
) -> None:
    lengths = {
        names.TEXT_OFFSETS: len(files[names.TEXTS]),
        names.TOKEN_OFFSETS: len(files[names.TOKENS]) // 4,
        names.PLACE_OFFSETS: len(files[names.PLACES]) // (8 * names.PLACE_COLUMNS),
    }
    for name, length in lengths.items():
        check_offsets(folder / name, longs(files[name]), length)
    if (np.diff(longs(files[names.PLACE_OFFSETS])) == 0).any():
        raise refused(folder / names.PLACE_OFFSETS, "a place for each chunk", "a chunk without one")
    _check_texts(folder / names.TEXTS, files)
    check_range(folder / names.TOKENS, ints(files[names.TOKENS]), manifest.vocabulary)
    places = longs(files[names.PLACES]).reshape(-1, names.PLACE_COLUMNS)
    check_range(folder / names.PLACES, places[:, 0], len(documents))
    if (places[:, 1] < 0).any() or (places[:, 2] < places[:, 1]).any():
        raise refused(folder / names.PLACES, "0 <= start <= end", "another order")
    check_finite(folder / names.VECTORS, vectors)


def _check_texts(path: Path, files: Mapping[str, memoryview]) -> None:
    offsets = longs(files[names.TEXT_OFFSETS]).tolist()
    for start, end in pairwise(offsets):
        try:
            str(files[names.TEXTS][start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise refused(path, "UTF-8", f"{error.reason} at byte {start + error.start}") from error
