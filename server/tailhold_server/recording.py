"""What surfaces do beside answering, with its audit record: searches, and what becomes of documents."""

import uuid
from collections.abc import Sequence

from tailhold_server.access.caller import Caller
from tailhold_server.audit.events import Action, File, FileEvent, SearchEvent
from tailhold_server.handlers.search import Hit
from tailhold_server.routes.vector_stores.protocol import SearchRequest
from tailhold_server.service import Service
from tailhold_server.uploads.entry import About

REQUEST_HEADER = "x-request-id"
"""Where a search's client finds the id that its record has, as OpenAI's clients read it."""


async def search(service: Service, asked: SearchRequest, caller: Caller, surface: str) -> tuple[str, list[Hit]]:
    """The request's id and the passages, which are recorded before they are handed over. Raises ServeError."""
    request_id = f"search-{uuid.uuid4().hex}"
    with service.counted(caller):
        found = await service.handlers.search.search(
            asked.queries,
            asked.max_num_results,
            min_score=asked.min_score,
            wanted=asked.wanted,
            tenant=caller.tenant,
        )
        told = SearchEvent(
            request_id,
            surface,
            caller,
            service.revision_of(found.content),
            found.content,
            asked.queries,
            asked.wanted is not None,
            [(each.key, each.score) for each in found.hits],
        )
        await service.auditor.happened(told, found.content.part.recording)
    return request_id, found.hits


async def record_files(service: Service, action: Action, surface: str, caller: Caller, files: Sequence[File]) -> None:
    """Returns when it is recorded. Raises ServeError."""
    told = FileEvent(action, surface, caller, files)
    await service.auditor.happened(told, service.contents.current.part.recording)


def uploaded(name: str, about: About) -> File:
    """A file that a client brought."""
    return File(name, about.sha256, about.filename)


async def named(service: Service, names: Sequence[str]) -> list[File]:
    """Documents by their ids, with what is known of those that clients brought."""
    abouts = await service.handlers.store.abouts(names)
    return [uploaded(each, abouts[each]) if each in abouts else File(each) for each in names]
