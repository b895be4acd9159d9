"""Whose child an object is: names, labels and owner."""

from collections.abc import Mapping
from dataclasses import dataclass

from tailhold_api import names
from tailhold_operator.kinds import KINDS, Manifest


@dataclass(frozen=True)
class Identity:
    """The pipeline that owns what is rendered."""

    namespace: str
    name: str
    uid: str

    def child(self, *suffix: str) -> str:
        """The name of a child."""
        return names.child_name(self.name, *suffix)

    @property
    def host(self) -> str:
        """The name of the Service within the cluster."""
        return names.service_host(self.child(), self.namespace)

    @property
    def audience(self) -> str:
        """Whom the operator's tokens are for."""
        return f"{self.namespace}/{self.name}"

    def labels(self, component: str) -> dict[str, str]:
        """What every object of a component carries."""
        return {
            names.LABEL_NAME: "tailhold",
            names.LABEL_INSTANCE: self.child(),
            names.LABEL_COMPONENT: component,
            names.LABEL_PART_OF: "tailhold",
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
            names.LABEL_PIPELINE_UID: self.uid,
        }

    def selector(self, **more: str) -> dict[str, str]:
        """What picks pods of this very pipeline: a namesake that was deleted has another UID."""
        return {names.LABEL_INSTANCE: self.child(), names.LABEL_PIPELINE_UID: self.uid, **more}

    def object(
        self,
        kind: str,
        name: str,
        component: str = names.COMPONENT_SERVER,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Manifest:
        """The head of a child: all but what it is for."""
        metadata: Manifest = {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.labels(component), **(labels or {})},
            "ownerReferences": [self._owner()],
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {"apiVersion": KINDS[kind].api_version, "kind": kind, "metadata": metadata}

    def _owner(self) -> Manifest:
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
        }


def identity_of(pipeline: Manifest) -> Identity:
    """Who a RagPipeline is."""
    metadata = pipeline["metadata"]
    return Identity(metadata["namespace"], metadata["name"], metadata["uid"])
