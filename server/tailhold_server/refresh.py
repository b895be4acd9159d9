"""A running server follows the uploads: deletions, and without a cluster the index that it has built for them."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from tailhold_api.parts import ContentPart
from tailhold_server.errors import ContentRefusedError, ServeError
from tailhold_server.service import Service

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Refresh:
    """How an index for uploads is made."""

    build: Callable[[str], ContentPart | None]
    """Builds in a process of its own from what is there now and gives the content with it; None where it failed.
    Slow: off the event loop. Takes the digest of the uploads."""
    stop: Callable[[], None]
    """Ends a build that runs: nobody waits for it any more."""
    least_seconds: float
    """Between two builds."""
    built: str = ""
    """Digest of the uploads in the index that the server starts with."""


def is_due(staged: str, built: str, *, since: float | None, now: float, least_seconds: float) -> bool:
    """Whether to build: uploads differ from those of the last build, begun at `since`, and it is time."""
    return staged != built and (since is None or now - since >= least_seconds)


async def follow(service: Service, refresh: Refresh | None) -> None:
    """Notice what other pods were told to delete, and with `refresh` build, until it is cancelled.

    A build that fails is tried again with the next change alone.
    """
    built, since = refresh.built if refresh else "", None
    while True:
        await service.look()
        staged = service.staged
        if refresh and is_due(staged, built, since=since, now=time.monotonic(), least_seconds=refresh.least_seconds):
            built, since = staged, time.monotonic()
            await _rebuild(service, refresh, staged)
        await asyncio.sleep(_LOOK_SECONDS)


async def _rebuild(service: Service, refresh: Refresh, staged: str) -> None:
    _LOG.info("uploads changed: building an index")
    try:
        content = await asyncio.to_thread(refresh.build, staged)
    except asyncio.CancelledError:
        refresh.stop()
        raise
    if content is None:
        _LOG.error("the index for the uploads was not built; the one before it serves on")
        return
    try:
        service.put_content(await asyncio.to_thread(service.contents.load, content))
    except (ContentRefusedError, ServeError) as error:
        _LOG.error("the index for the uploads was not taken: %s", error)
        return
    await service.look()
    _LOG.info("the index with the uploads is in force")
