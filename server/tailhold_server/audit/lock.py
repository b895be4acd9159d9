"""Who writes to a pod's folder: one process."""

import errno
import fcntl
import os
from pathlib import Path

from tailhold_server.audit.files import LOCK


class FolderLock:
    """Held from its making on, for as long as the folder is the same one."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError, EBUSY where another process has it."""
        self._path = folder / LOCK
        self._descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o640)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise OSError(errno.EBUSY, "another process writes its records there") from None
        except OSError:
            self.release()
            raise

    def is_there(self) -> bool:
        """False where the folder was removed, or another one stands in its place."""
        return is_at(self._path, self._descriptor)

    def release(self) -> None:
        """Once."""
        os.close(self._descriptor)


def is_at(path: Path, descriptor: int) -> bool:
    """Whether the path leads to the open file. A link count of 0 would not do: NFS keeps deleted files that are open
    under another name, and a folder may be moved away."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
