"""Whom a pod runs as. The rest of the Pod Security level "restricted" is not for a spec to change."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tailhold_api.fields import Model, Rule, restart

_MOST = 2147483647
_GROUP: dict[str, Any] = {"ge": 0, "le": _MOST}


class Ids(StrEnum):
    """Who chooses the numbers of user and groups."""

    FIXED = "Fixed"
    CLUSTER = "Cluster"


class SeLinuxOptions(Model):
    """SELinux on the node. Type, role and user are the runtime's: the level "restricted" forbids others."""

    level: str = restart(min_length=2, max_length=100, pattern=r"^s[0-9][a-z0-9:.,-]*$")
    """Level and categories, as `s0:c26,c5`: pods that share a volume across namespaces need the same."""


class SecurityContext(Model):
    """Whom the pod runs as. Never root, without capabilities, and on a read-only root file system in any case."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.ids != 'Cluster' || !(has(self.runAsUser) || has(self.runAsGroup) || has(self.fsGroup))",
            "`runAsUser`, `runAsGroup` and `fsGroup` may not be given when `ids` is `Cluster`: the cluster gives them",
            {"ids": "Cluster", "supplementalGroups": [2000]},
            {"ids": "Cluster", "runAsUser": 2000},
        ),
    )

    ids: Ids = restart(Ids.FIXED)
    """`Fixed` runs as the numbers below. `Cluster` leaves them out of the pod, so that the cluster gives its own, as
    OpenShift does from the range of a namespace; where nothing gives any, the image's user is taken."""
    run_as_user: int | None = restart(None, ge=1, le=_MOST)
    """User; 10001 where it is not given. The images run as any."""
    run_as_group: int | None = restart(None, **_GROUP)
    """Its first group; 0 where it is not given. The group 0 gives no rights of root; where a policy refuses it, any
    other will do."""
    fs_group: int | None = restart(None, **_GROUP)
    """The group that volumes belong to; 10001 where it is not given. Give the one that owns the files of your
    claims."""
    supplemental_groups: tuple[Annotated[int, Field(**_GROUP)], ...] = restart((), max_length=16)
    """More groups, as those that own files on a shared file system."""
    se_linux_options: SeLinuxOptions | None = restart(None)
    """SELinux; the runtime's choice where it is not given."""
