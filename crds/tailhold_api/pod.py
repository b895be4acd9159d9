"""What a cluster's own rules ask of our pods: labels, environment, volumes, identity, priority, spread."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from tailhold_api.delivery import Trust
from tailhold_api.fields import Model, Rule, part, restart
from tailhold_api.grammar import LABEL_KEY, NAME, LabelValue, Name, keyed, legal_keys, once
from tailhold_api.security import SecurityContext
from tailhold_api.variables import Variable, VariablesFrom
from tailhold_api.volumes import Volume

OWN_PREFIXES = ("tailhold.dev/", "app.kubernetes.io/", "batch.kubernetes.io/")
"""Labels and annotations that the operator sets, or Kubernetes' own controllers."""
CONTROLLERS_LABELS = ("controller-uid", "job-name", "pod-template-hash")
"""Others of theirs."""


def _names(field: str) -> tuple[Rule, Rule]:
    """Names that Kubernetes takes, and that are not ours."""
    own = " && ".join(f"!name.startsWith('{prefix}')" for prefix in OWN_PREFIXES)
    return (
        legal_keys(field),
        keyed(
            field,
            f"{own} && !(name in {list(CONTROLLERS_LABELS)!r})",
            f"`{field}` may not have {', '.join(f'`{each}`' for each in CONTROLLERS_LABELS)}, nor names that begin with"
            f" {' or '.join(f'`{each}`' for each in OWN_PREFIXES)}: the operator and Kubernetes set them",
            {field: {"example.com/team": "risk"}},
            {field: {"tailhold.dev/pod-part": "x"}},
        ),
    )


class WhenUnsatisfiable(StrEnum):
    """What becomes of a pod that cannot be spread."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class Spread(Model):
    """How the pods of a revision are spread."""

    topology_key: str = restart(**LABEL_KEY)
    """The node label whose values are the places, as `topology.kubernetes.io/zone` or `kubernetes.io/hostname`."""
    max_skew: int = restart(1, ge=1, le=100)
    """Most pods that one place may have more than the one with the fewest."""
    when_unsatisfiable: WhenUnsatisfiable = restart(WhenUnsatisfiable.SCHEDULE_ANYWAY)
    """`DoNotSchedule` leaves a pod waiting rather than uneven."""


class Pod(Model):
    """What a cluster's own rules ask of pods: of the serving pods and, but for `priorityClassName` and `spread`, of
    the Jobs that inspect and index. A change makes new serving pods and builds no index: it reaches the next Job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_names("labels"),
        *_names("annotations"),
        once(
            "env",
            "name",
            accepted={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            refused={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        ),
        once(
            "volumes",
            "name",
            accepted={
                "volumes": [
                    {"name": "a", "mountPath": "/a", "emptyDir": {"sizeMebibytes": 1}},
                    {"name": "b", "mountPath": "/b", "emptyDir": {"sizeMebibytes": 1}},
                ]
            },
            refused={
                "volumes": [
                    {"name": "a", "mountPath": "/a", "emptyDir": {"sizeMebibytes": 1}},
                    {"name": "a", "mountPath": "/b", "emptyDir": {"sizeMebibytes": 1}},
                ]
            },
        ),
        once(
            "volumes",
            "mountPath",
            accepted={"volumes": [{"name": "a", "mountPath": "/a", "emptyDir": {"sizeMebibytes": 1}}]},
            refused={
                "volumes": [
                    {"name": "a", "mountPath": "/a", "emptyDir": {"sizeMebibytes": 1}},
                    {"name": "b", "mountPath": "/a", "emptyDir": {"sizeMebibytes": 1}},
                ]
            },
        ),
        Rule(
            "self.spread.all(each, self.spread.exists_one(other, other.topologyKey == each.topologyKey"
            " && other.whenUnsatisfiable == each.whenUnsatisfiable))",
            "`spread` must have each `topologyKey` once for each `whenUnsatisfiable`: take the second one out",
            {"spread": [{"topologyKey": "zone"}, {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
            {"spread": [{"topologyKey": "zone"}, {"topologyKey": "zone", "maxSkew": 2}]},
        ),
        Rule(
            "!self.automountServiceAccountToken || has(self.serviceAccountName)",
            "`automountServiceAccountToken` may not be true without `serviceAccountName`: the operator's own account"
            " has no rights that a token could carry",
            {"automountServiceAccountToken": True, "serviceAccountName": "models"},
            {"automountServiceAccountToken": True},
        ),
    )

    labels: dict[str, LabelValue] = restart({}, max_length=32)
    """Labels beside the operator's own, as cost allocation, network policies or workload identity ask for."""
    annotations: dict[str, Annotated[str, Field(max_length=4000)]] = restart({}, max_length=32)
    """Annotations, as service meshes and log collectors read them."""
    env: tuple[Variable, ...] = restart((), max_length=64)
    """Environment variables, as a proxy's. Settings of vLLM belong to `engine`."""
    env_from: tuple[VariablesFrom, ...] = restart((), max_length=16)
    """Secrets and ConfigMaps whose keys become variables when a pod starts. The operator's own and `env` come before
    them."""
    volumes: tuple[Volume, ...] = restart((), max_length=16)
    """Volumes with where they are mounted, as a company's certificates."""
    trust: Trust | None = None
    """Authorities of the company's own, trusted beside the public ones by all that fetches: models, snapshots,
    archives. Read when a pod starts."""
    service_account_name: str | None = restart(None, **NAME)
    """An account of the pipeline's namespace that exists, as one that a cloud's workload identity knows. The operator
    makes one without rights where it is not given, and none where it is."""
    automount_service_account_token: bool = restart(False)
    """Mount the account's token for the API server. Workload identities of clouds bring their own token, and do not
    need it."""
    security_context: SecurityContext = part(SecurityContext)
    """Whom the pods run as."""
    priority_class_name: str | None = restart(None, **NAME)
    """PriorityClass of the serving pods: which of them may push others off a full node."""
    image_pull_secrets: tuple[Name, ...] = restart((), max_length=10)
    """Secrets of the pipeline's namespace to pull images with, beside the operator's own."""
    spread: tuple[Spread, ...] = restart((), max_length=5)
    """How the serving pods of a revision are spread over zones and nodes."""
