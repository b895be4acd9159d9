"""The pipeline's one vector store: its documents, those that clients uploaded, and how far each is."""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from tailhold_api.sources import Uploads
from tailhold_server.content import Contents, Index
from tailhold_server.errors import Failure, ServeError, invalid
from tailhold_server.handlers.documents import Attributes, open_chunks
from tailhold_server.handlers.stored import (
    FileState,
    Seen,
    StoredFile,
    has_document,
    reported,
    stored_file,
    stored_files,
    texts_of,
)
from tailhold_server.handlers.visible import Visible
from tailhold_server.ingest.report import DocumentFailure
from tailhold_server.uploads.entry import About, Added
from tailhold_server.uploads.folder import Folder
from tailhold_server.uploads.incoming import Incoming
from tailhold_server.uploads.left import Batch, Stood
from tailhold_server.uploads.names import is_id, staged_digest
from tailhold_server.uploads.threads import VolumeThreads

MOST_IN_BATCH = 2000
"""OpenAI's limit."""
_PIECE_BYTES = 64 * 1024
_GIVE_UP_SECONDS = 1.0
"""So long who sent a file waits until nothing is left of it."""
NOT_TAKEN = "This pipeline takes no uploads: `corpus.uploads` is not set in its spec."

Value = TypeVar("Value")
Record = Callable[[str, About], Awaitable[None]]
"""Told of a file that was kept; returns when it is recorded."""


class VectorStore:
    """Files, and what of them can be found."""

    def __init__(
        self,
        contents: Contents,
        visible: Visible,
        store: Path,
        uploads: Uploads | None = None,
        folder: Folder | None = None,
        threads: VolumeThreads | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._contents = contents
        self.visible = visible
        self._builds = store / "builds"
        self._uploads = uploads
        self._folder = folder
        self._threads = threads or VolumeThreads()
        self._refreshing: asyncio.Task[None] | None = None
        self._now = now
        self._own: Mapping[str, Attributes] = {}
        self._looks = self._last_put = 0
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

    async def refresh(self, seconds: float | None = None) -> None:
        """Look at the uploads: what was deleted by another pod is hidden from now on.

        One look for all who ask meanwhile; who has waited for so long is let go, and the look goes on.
        Raises ServeError.
        """
        if self._folder is None:
            return
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._threads.kept(self._refresh(self._folder))
        task = self._refreshing
        done, _ = await asyncio.wait({task}, timeout=self._threads.seconds if seconds is None else seconds)
        if done:
            task.result()

    async def _refresh(self, folder: Folder) -> None:
        await self._threads.run(partial(folder.prepare, self._now()), self._threads.long_seconds)
        await self._look(self._threads.long_seconds)

    # Files

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[Incoming]:
        """A place for a file that comes. What is not kept within leaves nothing, however it ends. Raises ServeError."""
        incoming = await self._threads.run(self._received)
        try:
            yield incoming
        finally:
            given_up = self._threads.leave(incoming.abandon)
            await asyncio.wait({given_up}, timeout=_GIVE_UP_SECONDS)

    def _received(self) -> Incoming:
        self.folder.prepare(self._now())
        return self.folder.receive(self.limits.max_files)

    async def write(self, incoming: Incoming, data: bytes) -> None:
        """The next piece of a file that comes. Raises ServeError."""
        await self._threads.run(partial(incoming.write, data))

    async def keep(self, incoming: Incoming, name: str, purpose: str, record: Record) -> tuple[str, About]:
        """Publish what has come and record it: both also where who waits is cancelled. Raises ServeError."""
        return await asyncio.shield(self._threads.kept(self._keep(incoming, name, purpose, record)))

    async def _keep(self, incoming: Incoming, name: str, purpose: str, record: Record) -> tuple[str, About]:
        finish = partial(incoming.finish, name, purpose, int(self._now()))
        published = await self._threads.run(finish, self._threads.long_seconds)
        await record(*published)
        return published

    async def files(self) -> dict[str, About]:
        """All that were uploaded and are whole."""
        entries = await self._threads.run(self.folder.entries)
        return {name: each.about for name, each in entries.items()}

    async def file(self, name: str) -> About:
        """One of them. Raises ServeError."""
        return _known(await self._threads.run(partial(self.folder.entry, name)), "file").about

    async def content(self, name: str) -> tuple[About, BinaryIO]:
        """One of them and its bytes, to be read by `pieces` and closed by `close`. Raises ServeError."""
        return _known(await self._threads.run(partial(self.folder.content, name)), "file")

    async def pieces(self, file: BinaryIO) -> AsyncIterator[bytes]:
        """All of an open file. Raises ServeError."""
        while data := await self._threads.run(partial(file.read, _PIECE_BYTES)):
            yield data

    def close(self, file: BinaryIO) -> None:
        """Close it, once a read that hangs is over."""
        self._threads.leave(file.close)

    async def check_there(self, name: str) -> None:
        """Raises ServeError where there is no such file, not even a damaged one."""
        _check(await self._threads.run(partial(self.folder.is_there, name)))

    async def remove(self, name: str) -> None:
        """Delete it, damaged or not: nothing of it is found any more. Raises ServeError."""
        _check(await self._threads.run(partial(self.folder.remove, name)))
        await self._look(changed=name)

    async def abouts(self, names: Sequence[str]) -> dict[str, About]:
        """What is known of those among them that were uploaded and are whole, as of the last look."""
        if self._folder is None:
            return {}
        return await self._threads.run(partial(_abouts, self._folder, names))

    async def stood(self, name: str) -> Stood:
        """Where a document that is gone stood in lists; nowhere where nobody knows."""
        stood = await self._threads.run(partial(self._folder.stood, name)) if self._folder is not None else None
        if stood is None and await asyncio.to_thread(has_document, self._contents.indexes, name):
            return Stood(added_at=0)
        return stood or Stood()

    # Files of the vector store

    async def add(self, name: str, attributes: Attributes) -> StoredFile:
        """Make a file part of the corpus; once more changes its attributes alone. Raises ServeError."""
        _check(await self._threads.run(partial(self._add, name, attributes)))
        return await self.stored(name)

    def _add(self, name: str, attributes: Attributes) -> bool:
        return self.folder.add(name, Added(int(self._now()), dict(attributes)))

    async def describe(self, name: str, attributes: Attributes) -> StoredFile:
        """Change the attributes of a file of the corpus. Raises ServeError."""
        _check(await self._threads.run(partial(self.folder.describe, name, dict(attributes))))
        return await self.stored(name)

    async def take_out(self, name: str, closed: frozenset[str] = frozenset()) -> None:
        """Nothing of it is found any more; the file stays. Raises ServeError."""
        if self._folder is None or not await self._threads.run(partial(self.folder.take_out, name)):
            source = (await self.stored(name, closed)).attributes["source"]
            raise invalid(f"`{name}` belongs to the corpus source `{source}`: take it out there", "file_id")
        await self._look(changed=name)

    async def stored(self, name: str, closed: frozenset[str] = frozenset()) -> StoredFile:
        """A document by its id; one of a source that is closed to who asks is not there. Raises ServeError."""
        seen = await self._look(changed=name)
        found = await asyncio.to_thread(stored_file, seen, name)
        return _known(found if found and found.attributes["source"] not in closed else None, "file")

    async def all_stored(self, closed: frozenset[str] = frozenset()) -> list[StoredFile]:
        """All documents, uploaded or not, beside those of sources that are closed to who asks."""
        seen = await self._look()
        stored = await asyncio.to_thread(stored_files, seen)
        return [each for each in stored if each.attributes["source"] not in closed] if closed else stored

    async def counts(self, closed: frozenset[str] = frozenset()) -> tuple[Counter[FileState], int]:
        """How many documents are how far, and the bytes of all uploads among them."""
        stored = await self.all_stored(closed)
        return Counter(each.state for each in stored), sum(each.bytes for each in stored)

    async def texts(self, name: str, closed: frozenset[str] = frozenset()) -> list[str]:
        """The passages of a document, in their order. Raises ServeError."""
        await self.stored(name, closed)
        index = self._contents.current.index
        return await asyncio.to_thread(texts_of, index, name)

    # Batches

    async def add_batch(self, files: Sequence[tuple[str, Attributes]]) -> tuple[str, Batch]:
        """Make files part of the corpus: all of them or, where one is not known, none. Raises ServeError."""
        if not 1 <= len(files) <= MOST_IN_BATCH:
            raise invalid(f"a batch has 1 to {MOST_IN_BATCH} files, not {len(files)}", "file_ids")
        result = await self._threads.run(partial(self._add_batch, files))
        await self._look()
        return result

    def _add_batch(self, files: Sequence[tuple[str, Attributes]]) -> tuple[str, Batch]:
        for place, (name, _) in enumerate(files):
            if self.folder.entry(name) is None:
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
        batch = _known(await self._threads.run(partial(self.folder.batch, name)), "batch")
        stored = {each.file_id: each for each in await self.all_stored()}
        gone = partial(StoredFile, filename="", state=FileState.CANCELLED, bytes=0, attributes={})
        return batch, [stored.get(each) or gone(file_id=each, created_at=batch.created_at) for each in batch.file_ids]

    async def cancel(self, name: str) -> tuple[Batch, list[StoredFile]]:
        """Take out what of a batch is not indexed yet. Raises ServeError."""
        batch, files = await self.batch(name)
        waiting = [each.file_id for each in files if each.state is FileState.IN_PROGRESS]
        for each in waiting:
            await self._threads.run(partial(self.folder.take_out, each))
        cancelled = batch.model_copy(update={"cancelled": tuple(dict.fromkeys((*batch.cancelled, *waiting)))})
        await self._threads.run(partial(self.folder.keep_batch, name, cancelled))
        return await self.batch(name)

    # One look

    async def _look(self, seconds: float | None = None, changed: str | None = None) -> Seen:
        """What a look that began later has put is not taken back by one that ends later.

        With `changed` this file is as it is now, and the others as of the last look.
        """
        self._looks += 1
        number, index = self._looks, self._contents.current.index
        seen = await self._seen(index, seconds, changed)
        corpus = seen.corpus.keys()
        if self._folder is not None and not self.visible.knows(corpus, index):
            mask = await asyncio.to_thread(open_chunks, index, corpus)
            if number > self._last_put:
                self.visible.put(corpus, index, mask)
        if number > self._last_put:
            self._last_put = number
            self._own = {name: added.attributes for name, (_, added) in seen.corpus.items() if added.attributes}
            self.staged = staged_digest(corpus)
        return seen

    async def _seen(self, index: Index, seconds: float | None, changed: str | None) -> Seen:
        if self._folder is None:
            return Seen(index)
        look = partial(self._folder.corpus, changed) if changed and is_id(changed) else self._folder.corpus
        corpus = await self._threads.run(look, seconds)
        return Seen(index, corpus, await asyncio.to_thread(self._failures, index.build))

    def _failures(self, build: str) -> Mapping[str, DocumentFailure]:
        """Of the build that made the snapshot, by the ids of uploads."""
        if build not in self._reports:
            self._reports = {build: reported(self._builds / f"{build}.json")}
        return self._reports[build]


def _abouts(folder: Folder, names: Sequence[str]) -> dict[str, About]:
    """A look at one of them tells of the others as of the last look."""
    entries = folder.entries(next((each for each in names if is_id(each)), None))
    return {name: entries[name].about for name in names if name in entries}


def _check(is_there: bool) -> None:
    _known(is_there or None, "file")


def _known(value: Value | None, name: str) -> Value:
    """The value, or the 404 for an id that there is none of."""
    if value is None:
        raise ServeError(Failure.NOT_FOUND, f"No such {name}.", param=f"{name.replace(' ', '_')}_id")
    return value
