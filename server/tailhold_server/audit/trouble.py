"""What keeps records from being written, and what helps."""

import errno

_NEXT = {
    errno.ENOSPC: "make room on the claim, or shorten `audit.retentionDays`",
    errno.EDQUOT: "raise the quota of the claim, or shorten `audit.retentionDays`",
    errno.EROFS: "mount the volume writable again: a file system that found errors makes itself read-only",
    errno.EACCES: "give the server's user the right to write there",
    errno.EPERM: "give the server's user the right to write there",
    errno.ENOENT: "put the folder back",
    errno.ENOTDIR: "a file stands where a folder belongs: move it away",
    errno.EEXIST: "a file stands where a folder belongs: move it away",
    errno.EBUSY: "end the other process, or give each its own `TAILHOLD_POD_NAME`",
}


def trouble(error: Exception) -> str:
    """The system's words and the next step; of what is no error of the system its type alone, which quotes nothing."""
    if not isinstance(error, OSError):
        return f"{type(error).__name__}, a mistake of the server: please report it"
    return f"{error.strerror}; {_NEXT.get(error.errno or 0, 'look at the volume')}. It is tried again by itself"
