"""Which nodes, and which neighbours, a pod has to have: as it stands in a pod, so that it can be pasted."""

from enum import StrEnum
from typing import ClassVar

from tailhold_api.fields import Model, Rule, restart
from tailhold_api.grammar import LABEL_KEY, LabelValue, Namespace, legal_keys


class NodeOperator(StrEnum):
    """How a node's label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class NodeRequirement(Model):
    """What a label of the node must be."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.operator in ['In', 'NotIn'] ? self.values.size() > 0 : self.operator in ['Gt', 'Lt']"
            " ? self.values.size() == 1 && self.values[0].matches('^[0-9]+$') : self.values.size() == 0",
            "`values` must be some with `In` and `NotIn`, one whole number with `Gt` and `Lt`, and none with `Exists`"
            " and `DoesNotExist`",
            {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["40000"]},
            {"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["40Gi"]},
        ),
    )

    key: str = restart(**LABEL_KEY)
    """The node's label."""
    operator: NodeOperator = restart()
    """How it is compared."""
    values: tuple[LabelValue, ...] = restart((), max_length=64)
    """What it is compared with."""


class NodeTerm(Model):
    """Nodes that meet every requirement."""

    match_expressions: tuple[NodeRequirement, ...] = restart(min_length=1, max_length=16)
    """All of these must hold."""


class NodeTerms(Model):
    """Nodes that are in one of the terms."""

    node_selector_terms: tuple[NodeTerm, ...] = restart(min_length=1, max_length=16)
    """One of these must hold."""


class PreferredNodes(Model):
    """Nodes that are taken first."""

    weight: int = restart(ge=1, le=100)
    """How much this counts beside other preferences."""
    preference: NodeTerm
    """The nodes."""


class NodeAffinity(Model):
    """Which nodes."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = restart(None)
    """Nodes that may be used at all, where `nodeSelector` cannot say it."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredNodes, ...] = restart((), max_length=16)
    """Nodes that are better than others."""


class LabelOperator(StrEnum):
    """How a pod's label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelRequirement(Model):
    """What a label of a pod must be."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (self.values.size() > 0)",
            "`values` must be some with `In` and `NotIn`, and none with `Exists` and `DoesNotExist`",
            {"key": "app", "operator": "In", "values": ["cache"]},
            {"key": "app", "operator": "Exists", "values": ["cache"]},
        ),
    )

    key: str = restart(**LABEL_KEY)
    """The pod's label."""
    operator: LabelOperator = restart()
    """How it is compared."""
    values: tuple[LabelValue, ...] = restart((), max_length=64)
    """What it is compared with."""


class LabelSelector(Model):
    """Pods by their labels. Empty, it is all pods."""

    rules: ClassVar[tuple[Rule, ...]] = (legal_keys("matchLabels"),)

    match_labels: dict[str, LabelValue] = restart({}, max_length=16)
    """Labels with their values. Serving pods of a pipeline have `app.kubernetes.io/instance` with its name and
    `app.kubernetes.io/component` with `server`; its Jobs' pods have the first too."""
    match_expressions: tuple[LabelRequirement, ...] = restart((), max_length=16)
    """All of these must hold too."""


class PodTerm(Model):
    """Neighbours within a place."""

    label_selector: LabelSelector
    """Which pods."""
    topology_key: str = restart(**LABEL_KEY)
    """The node label whose value says what one place is, as `kubernetes.io/hostname`."""
    namespaces: tuple[Namespace, ...] = restart((), max_length=16)
    """Where the pods are; the pipeline's own namespace where none is given."""


class PreferredPods(Model):
    """Neighbours that are sought, or avoided, first."""

    weight: int = restart(ge=1, le=100)
    """How much this counts beside other preferences."""
    pod_affinity_term: PodTerm
    """The neighbours."""


class PodAffinity(Model):
    """Which neighbours."""

    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] = restart((), max_length=16)
    """All of these must hold. A revision whose pods avoid the pods of the one before needs nodes for both."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPods, ...] = restart((), max_length=16)
    """What is better than other places."""


class Affinity(Model):
    """Nodes and neighbours, in the words of a pod's `affinity`. Without `matchFields`, `namespaceSelector`,
    `matchLabelKeys` and `mismatchLabelKeys`."""

    node_affinity: NodeAffinity | None = restart(None)
    """Nodes by their labels."""
    pod_affinity: PodAffinity | None = restart(None)
    """Pods to be near to."""
    pod_anti_affinity: PodAffinity | None = restart(None)
    """Pods to be away from."""
