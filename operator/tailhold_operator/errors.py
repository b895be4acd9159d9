"""What can go wrong while acting, by who has to do something about it."""


class ClusterError(Exception):
    """The API server did not do what it was asked."""


class UnavailableError(ClusterError):
    """No answer, or one that says try again: the world's mood, retried with a delay."""


class ConflictError(ClusterError):
    """Somebody changed the object in between, or it is not the one that was meant: read again."""


class RefusedError(ClusterError):
    """The API server will not have it: a quota, a policy, a missing right, or a fault of ours."""


class NotLeaderError(ClusterError):
    """This process may not write: another one holds the lease, or ours was not renewed in time."""
