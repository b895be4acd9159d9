"""One publication at a time, of all pods, so that files are counted and added in one step."""

import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailhold_server.errors import Failure, ServeError

WAIT_SECONDS = 10.0
"""What is held for longer is held by a process that hangs."""
_LOOK_SECONDS = 0.005
_BUSY = (errno.EAGAIN, errno.EACCES, errno.EINTR)
_LOG = logging.getLogger(__name__)


class Turn:
    """Taken by threads of this process and, through a lock on the volume, by other pods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._is_told = False

    @contextmanager
    def taken(self, seconds: float = WAIT_SECONDS) -> Iterator[None]:
        """Raises ServeError where it is not given for so long; OSError."""
        if not self._lock.acquire(timeout=seconds):
            raise _held()
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o660)
            try:
                self._take(handle, time.monotonic() + seconds)
                yield
            finally:
                os.close(handle)  # which gives the lock back
        finally:
            self._lock.release()

    def _take(self, handle: int, until: float) -> None:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _BUSY:
                    self._tell(error)
                    return
                if time.monotonic() > until:
                    raise _held() from None
                time.sleep(_LOOK_SECONDS)
            else:
                return

    def _tell(self, error: OSError) -> None:
        if not self._is_told:
            self._is_told = True
            told = "the volume of `corpus.uploads` knows no locks (%s): each pod keeps to `maxFiles` by itself alone"
            _LOG.warning(told, error.strerror)


def _held() -> ServeError:
    told = "The lock on the volume of `corpus.uploads` is held by a process that does not let go of it."
    return ServeError(Failure.UNAVAILABLE, told, retry_after_seconds=5)
