"""The pipeline's one vector store: its documents, those that clients uploaded, and how far each is."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from tailhold_api.codec import load
from tailhold_api.sources import UPLOADS, Uploads
from tailhold_server.content import Contents, Index
from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.handlers.documents import Attributes, Scalar, attributes_of, file_id, filename, open_chunks
from tailhold_server.handlers.visible import Visible
from tailhold_server.ingest.report import BuildReport, DocumentFailure, Why
from tailhold_server.uploads.folder import (
    DELETED,
    FILES,
    About,
    Added,
    Batch,
    Folder,
    Incoming,
    known,
    staged_digest,
    too_many,
)

MOST_IN_BATCH = 2000
"""OpenAI's limit."""
NOT_TAKEN = "This pipeline takes no uploads: `corpus.uploads` is not set in its spec."


class FileState(StrEnum):
    """How far a document is."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True)
class StoredFile:
    """A document of the vector store."""

    file_id: str
    filename: str
    state: FileState
    created_at: int
    """0 for documents of the spec's own sources: nobody knows."""
    bytes: int
    attributes: Attributes
    failure: DocumentFailure | None = None


@dataclass(frozen=True)
class _Seen:
    """One look at the uploads, beside the snapshot in force."""

    index: Index
    abouts: Mapping[str, About] = field(default_factory=dict)
    added: Mapping[str, Added] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    failures: Mapping[str, DocumentFailure] = field(default_factory=dict)


class VectorStore:
    """Files, and what of them can be found."""

    def __init__(
        self,
        contents: Contents,
        visible: Visible,
        store: Path,
        uploads: Uploads | None = None,
        folder: Folder | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._contents = contents
        self.visible = visible
        self._builds = store / "builds"
        self._uploads = uploads
        self._folder = folder
        self._now = now
        self._own: Mapping[str, Attributes] = {}
        self._reports: dict[str, Mapping[str, DocumentFailure]] = {}
        self.staged = ""
        """Digest of the corpus that was staged, as of the last look; empty for none."""

    @property
    def folder(self) -> Folder:
        """Raises ServeError where the pipeline takes no uploads."""
        if self._folder is None:
            raise ServeError(Failure.NOT_FOUND, NOT_TAKEN, param="corpus.uploads", code="uploads_not_enabled")
        return self._folder

    @property
    def limits(self) -> Uploads:
        """Raises ServeError where the pipeline takes no uploads."""
        _ = self.folder
        assert self._uploads is not None  # noqa: S101  they are given together
        return self._uploads

    def own_attributes(self) -> Mapping[str, Attributes]:
        """Attributes that clients gave to their files, as of the last look."""
        return self._own

    async def refresh(self) -> None:
        """Look at the uploads: what was deleted by another pod is hidden from now on."""
        if self._folder is not None:
            await asyncio.to_thread(self._folder.prepare, self._now())
            await self._look()

    # Files

    async def receive(self) -> Incoming:
        """A place for a file that comes. Raises ServeError."""
        folder, most = self.folder, self.limits.max_files
        if len(await asyncio.to_thread(folder.names, FILES)) >= most:
            raise too_many(most)
        await asyncio.to_thread(folder.prepare, self._now())
        return await asyncio.to_thread(folder.receive)

    async def keep(self, incoming: Incoming, name: str, purpose: str) -> tuple[str, About]:
        """Publish what has come."""
        return await asyncio.to_thread(incoming.finish, name, purpose, int(self._now()))

    async def files(self) -> dict[str, About]:
        """All that were uploaded."""
        return await asyncio.to_thread(self.folder.abouts)

    async def file(self, name: str) -> About:
        """One of them. Raises ServeError."""
        found: About = known(await asyncio.to_thread(self.folder.about, name), "file")
        return found

    async def content(self, name: str) -> Path:
        """Where its bytes are. Raises ServeError."""
        await self.file(name)
        return self.folder.content(name)

    async def remove(self, name: str) -> None:
        """Delete it: nothing of it is found any more. Raises ServeError."""
        await self.file(name)
        await asyncio.to_thread(self.folder.remove, name)
        await self._look()

    # Files of the vector store

    async def add(self, name: str, attributes: Attributes) -> StoredFile:
        """Make a file part of the corpus; once more changes its attributes alone. Raises ServeError."""
        await self.file(name)
        await asyncio.to_thread(self._add, name, attributes)
        await self._look()
        return await self.stored(name)

    def _add(self, name: str, attributes: Attributes) -> None:
        before = self.folder.added(name)
        since = before.created_at if before else int(self._now())
        self.folder.add(name, Added(created_at=since, attributes=dict(attributes)))

    async def describe(self, name: str, attributes: Attributes) -> StoredFile:
        """Change the attributes of a file of the corpus. Raises ServeError."""
        known(await asyncio.to_thread(self.folder.added, name), "file")
        return await self.add(name, attributes)

    async def take_out(self, name: str, closed: frozenset[str] = frozenset()) -> None:
        """Nothing of it is found any more; the file stays. Raises ServeError."""
        if self._folder is None or await asyncio.to_thread(self.folder.added, name) is None:
            source = (await self.stored(name, closed)).attributes["source"]
            raise invalid(f"`{name}` belongs to the corpus source `{source}`: take it out there", "file_id")
        await asyncio.to_thread(self.folder.take_out, name)
        await self._look()

    async def stored(self, name: str, closed: frozenset[str] = frozenset()) -> StoredFile:
        """A document by its id; one of a source that is closed to who asks is not there. Raises ServeError."""
        found: StoredFile = known({each.file_id: each for each in await self.all_stored(closed)}.get(name), "file")
        return found

    async def all_stored(self, closed: frozenset[str] = frozenset()) -> list[StoredFile]:
        """All documents, uploaded or not, beside those of sources that are closed to who asks."""
        seen = await self._look()
        stored = await asyncio.to_thread(_stored, seen)
        return [each for each in stored if each.attributes["source"] not in closed] if closed else stored

    async def counts(self, closed: frozenset[str] = frozenset()) -> tuple[Counter[FileState], int]:
        """How many documents are how far, and the bytes of all uploads among them."""
        stored = await self.all_stored(closed)
        return Counter(each.state for each in stored), sum(each.bytes for each in stored)

    async def texts(self, name: str, closed: frozenset[str] = frozenset()) -> list[str]:
        """The passages of a document, in their order. Raises ServeError."""
        await self.stored(name, closed)
        index = self._contents.current.index
        return await asyncio.to_thread(_texts, index, name)

    # Batches

    async def add_batch(self, files: Sequence[tuple[str, Attributes]]) -> tuple[str, Batch]:
        """Make files part of the corpus: all of them or, where one is not known, none. Raises ServeError."""
        if not 1 <= len(files) <= MOST_IN_BATCH:
            raise invalid(f"a batch has 1 to {MOST_IN_BATCH} files, not {len(files)}", "file_ids")
        result = await asyncio.to_thread(self._add_batch, files)
        await self._look()
        return result

    def _add_batch(self, files: Sequence[tuple[str, Attributes]]) -> tuple[str, Batch]:
        for place, (name, _) in enumerate(files):
            if self.folder.about(name) is None:
                raise ServeError(Failure.NOT_FOUND, f"No such file: `{name[:100]}`.", param=f"file_ids[{place}]")
        for name, attributes in files:
            self._add(name, attributes)
        told = json.dumps([[name, dict(attributes)] for name, attributes in files], sort_keys=True)
        batch_id = f"vsfb_{hashlib.sha256(told.encode()).hexdigest()[:32]}"
        batch = Batch(created_at=int(self._now()), file_ids=tuple(dict.fromkeys(name for name, _ in files)))
        self.folder.keep_batch(batch_id, batch)
        return batch_id, batch

    async def batch(self, name: str) -> tuple[Batch, list[StoredFile]]:
        """A batch and its files, those that were taken out since as cancelled. Raises ServeError."""
        batch: Batch = known(await asyncio.to_thread(self.folder.batch, name), "batch")
        stored = {each.file_id: each for each in await self.all_stored()}
        gone = partial(StoredFile, filename="", state=FileState.CANCELLED, bytes=0, attributes={})
        return batch, [stored.get(each) or gone(file_id=each, created_at=batch.created_at) for each in batch.file_ids]

    async def cancel(self, name: str) -> tuple[Batch, list[StoredFile]]:
        """Take out what of a batch is not indexed yet. Raises ServeError."""
        batch, files = await self.batch(name)
        waiting = [each.file_id for each in files if each.state is FileState.IN_PROGRESS]
        for each in waiting:
            await asyncio.to_thread(self.folder.take_out, each)
        cancelled = batch.model_copy(update={"cancelled": tuple(dict.fromkeys((*batch.cancelled, *waiting)))})
        await asyncio.to_thread(self.folder.keep_batch, name, cancelled)
        return await self.batch(name)

    # One look

    async def _look(self) -> _Seen:
        index = self._contents.current.index
        seen = await asyncio.to_thread(self._seen, index)
        mask = await asyncio.to_thread(open_chunks, index, seen.deleted)
        self.visible.put(seen.deleted, index, mask)
        self._own = {name: each.attributes for name, each in seen.added.items() if each.attributes}
        self.staged = staged_digest(list(seen.added))
        return seen

    def _seen(self, index: Index) -> _Seen:
        if self._folder is None:
            return _Seen(index)
        added = self._folder.all_added()
        deleted = frozenset(self._folder.names(DELETED)) - added.keys()
        return _Seen(index, self._folder.abouts(), added, deleted, self._failures(index.build))

    def _failures(self, build: str) -> Mapping[str, DocumentFailure]:
        """Of the build that made the snapshot, by the ids of uploads."""
        if build not in self._reports:
            self._reports = {build: _reported(self._builds / f"{build}.json")}
        return self._reports[build]


def _stored(seen: _Seen) -> list[StoredFile]:
    chunks = seen.index.chunks
    indexed = {file_id(each): each for place, each in enumerate(chunks.documents) if place not in chunks.gone}
    own = [
        StoredFile(name, filename(each), FileState.COMPLETED, 0, 0, attributes_of(each, {}))
        for name, each in indexed.items()
        if each.source != UPLOADS
    ]
    return own + [
        _upload(seen, name, added, name in indexed) for name, added in seen.added.items() if name in seen.abouts
    ]


def _upload(seen: _Seen, name: str, added: Added, indexed: bool) -> StoredFile:
    about, failed = seen.abouts[name], seen.failures.get(name)
    state = FileState.COMPLETED if indexed else FileState.FAILED if failed else FileState.IN_PROGRESS
    shown: dict[str, Scalar] = {**added.attributes, "source": UPLOADS}
    return StoredFile(name, about.filename, state, added.created_at, about.bytes, shown, None if indexed else failed)


def _texts(index: Index, name: str) -> list[str]:
    chunks, of = index.chunks, index.chunks.document_of
    places = {place for place, each in enumerate(chunks.documents) if file_id(each) == name} - chunks.gone
    return [chunks.text(at) for at in range(len(of)) if int(of[at]) in places]


def _reported(path: Path) -> Mapping[str, DocumentFailure]:
    try:
        report = load(BuildReport, path.read_bytes())
    except (OSError, ValidationError):
        return {}
    own = (each for each in report.failures if each.path.startswith(f"{UPLOADS}/"))
    return {each.path.split("/")[1]: each for each in own if each.reason is not Why.EMPTY_SOURCE}
