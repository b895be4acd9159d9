"""The rights that the operator uses. A test compares them with what it was seen doing, both ways."""

from typing import NamedTuple

from tailhold_api import names


class Rule(NamedTuple):
    """As in a Role."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()
    """Objects by name, where the right is for these alone; `{release}` stands for the release's full name."""


_KEPT = ("list", "watch", "create", "patch")
"""Server-side apply is `patch`, and `create` where nothing is there yet. Looking for a name is a `list`."""

_CHILD = (*_KEPT, "delete")
"""What goes before its pipeline does. The rest is left to the garbage collector."""

PIPELINE_RULES = (
    Rule(names.GROUP, (names.PLURAL,), ("get", "list", "watch")),
    Rule(names.GROUP, (f"{names.PLURAL}/status",), ("patch",)),
    Rule("", ("configmaps",), _CHILD),
    Rule("", ("serviceaccounts", "services"), _KEPT),
    Rule("policy", ("poddisruptionbudgets",), _KEPT),
    Rule("batch", ("jobs",), _CHILD),
    Rule("apps", ("deployments",), _CHILD),
    Rule("", ("pods",), ("list", "watch", "delete")),
    Rule("", ("events",), ("create", "list")),
)
"""Where pipelines live: in a ClusterRole, or in a Role of each namespace that is watched."""

RELEASE_RULES = (
    Rule("coordination.k8s.io", ("leases",), ("create",)),
    Rule("coordination.k8s.io", ("leases",), ("get", "update"), ("{release}",)),
    Rule("", ("secrets",), ("create",)),
    Rule("", ("secrets",), ("get",), ("{release}-key",)),
)
"""In the release's own namespace. Kubernetes cannot bind `create` to a name."""
