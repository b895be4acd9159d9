"""The kinds of objects that are read or written, and how an object is named."""

from typing import Any, NamedTuple, TypeAlias

from tailhold_api import names

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as it stands on the wire."""


class Kind(NamedTuple):
    """Where objects of a kind are found at the API server."""

    api_version: str
    plural: str
    listed: bool = True
    """Whether a pipeline's children may be of this kind."""


class Ref(NamedTuple):
    """One object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


KINDS = {
    "ConfigMap": Kind("v1", "configmaps"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "Service": Kind("v1", "services"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "Job": Kind("batch/v1", "jobs"),
    "Deployment": Kind("apps/v1", "deployments"),
    "Pod": Kind("v1", "pods"),
    "Event": Kind("v1", "events", listed=False),
    "Secret": Kind("v1", "secrets", listed=False),
    "Lease": Kind("coordination.k8s.io/v1", "leases", listed=False),
    names.KIND: Kind(names.API_VERSION, names.PLURAL, listed=False),
}
CHILD_KINDS = tuple(kind for kind, entry in KINDS.items() if entry.listed)


def ref_of(manifest: Manifest) -> Ref:
    """What a manifest names."""
    metadata = manifest["metadata"]
    return Ref(manifest["kind"], metadata["namespace"], metadata["name"])


def uid_of(manifest: Manifest) -> str:
    """The UID that the API server gave it."""
    return str(manifest["metadata"].get("uid", ""))


def owner_of(manifest: Manifest) -> Manifest:
    """The controlling owner reference; empty where there is none."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((dict(owner) for owner in owners if owner.get("controller")), {})


def is_owned_by(manifest: Manifest, uid: str) -> bool:
    """Whether the object with that UID controls it: the only test that makes a child ours."""
    return owner_of(manifest).get("uid") == uid


def is_terminating(manifest: Manifest) -> bool:
    """Whether it is being deleted."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def label_of(manifest: Manifest, label: str) -> str:
    """The value of a label; empty where there is none."""
    return str((manifest["metadata"].get("labels") or {}).get(label, ""))


def path_of(kind: str, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    """The path at the API server of one object, or of all in a namespace, or in all namespaces."""
    entry = KINDS[kind]
    root = "/api/" if "/" not in entry.api_version else "/apis/"
    parts = [entry.api_version, *(["namespaces", namespace] if namespace else []), entry.plural]
    return root + "/".join([*parts, *filter(None, (name, subresource))])
