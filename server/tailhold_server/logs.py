"""Logs without content: whose words an error quotes is not known, so none of them is logged."""

import asyncio
import logging
import traceback
from types import TracebackType
from typing import Any

_LOG = logging.getLogger(__name__)
_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class ContentFreeFormatter(logging.Formatter):
    """Says of an exception where it came from and its type, but not its message: it may quote a question or a key."""

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802  logging's name
        """The traceback, without messages."""
        return "\n".join(_told(ei[1])) if ei[1] is not None else ""


def configure(level: int) -> None:
    """For the whole process, before anything is logged."""
    handler = logging.StreamHandler()
    handler.setFormatter(ContentFreeFormatter(_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For an event loop's exception handler: its own one prints the exception, with its message, beside the task."""
    error = context.get("exception")
    _LOG.error("%s", context.get("message", "unhandled"), exc_info=error)


def _told(error: BaseException) -> list[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    told = [*_told(before), "the cause of:"] if before is not None else []
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return [*told, *([frames] if frames else []), f"{type(error).__name__} (its words are not logged)"]
