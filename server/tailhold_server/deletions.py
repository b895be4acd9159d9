"""Keeps deletions in force while the server runs: another pod or a Job writes them, without new content."""

import asyncio
import logging

from tailhold_server.content import Contents
from tailhold_server.errors import ContentRefusedError

_LOG = logging.getLogger(__name__)


async def take_deletions(contents: Contents) -> bool:
    """Look once; new questions find nothing of what was deleted. Whether there was any.

    Where the volume cannot say, what was deleted before stays so.
    """
    before = contents.latest
    try:
        fresh = await asyncio.to_thread(contents.deleted_since)
    except ContentRefusedError as error:
        _LOG.error("%s", error)
        return False
    # New content that came meanwhile has read the deletions itself.
    if fresh is None or contents.latest is not before:
        return False
    contents.put(fresh)
    _LOG.info("%d documents of the index are deleted", len(fresh.index.chunks.gone))
    return True


async def keep_deleted(contents: Contents, seconds: float) -> None:
    """Look every so often, for ever."""
    while True:
        await asyncio.sleep(seconds)
        await take_deletions(contents)
