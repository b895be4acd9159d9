"""What a cluster's own rules ask of a pod: labels, annotations, environment, priority, spread, pull secrets."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from tailhold_api.fields import Model, Rule, restart

OWN_PREFIXES = ("tailhold.dev/", "app.kubernetes.io/")
"""Labels and annotations that the operator sets."""
OWN_VARIABLES = (
    "HF_HOME",
    "HOME",
    "TMPDIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "USER",
    "VLLM_CACHE_ROOT",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)
"""Variables that the operator sets, besides those that begin with `TAILHOLD_`."""
_LABEL = "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"


def _names(field: str) -> tuple[Rule, Rule]:
    """Names that Kubernetes takes, and that are not ours."""
    own = " && ".join(f"!name.startsWith('{prefix}')" for prefix in OWN_PREFIXES)
    return (
        Rule(
            f"self.{field}.all(name, name.size() <= 316 && name.matches('{_LABEL}'))",
            f"`{field}` must have names like `team` or `example.com/team`: letters, digits, `-`, `_` and `.`",
            {field: {"example.com/team": "risk"}},
            {field: {"team name": "risk"}},
        ),
        Rule(
            f"self.{field}.all(name, {own})",
            f"`{field}` may not have names that begin with {' or '.join(f'`{each}`' for each in OWN_PREFIXES)}: the"
            " operator sets them",
            {field: {"example.com/team": "risk"}},
            {field: {"tailhold.dev/pod-part": "x"}},
        ),
    )


class Variable(Model):
    """An environment variable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!self.name.startsWith('TAILHOLD_') && !(self.name in {list(OWN_VARIABLES)!r})",
            "`name` may not be one that the operator sets, nor begin with `TAILHOLD_`: use the field of the spec",
            {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
            {"name": "HF_HOME", "value": "/elsewhere"},
        ),
    )

    name: str = restart(min_length=1, max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The variable."""
    value: str = restart("", max_length=4000)
    """Its value, as it is: nothing is expanded. Anyone who may read the pod may read it: no place for secrets."""


class WhenUnsatisfiable(StrEnum):
    """What becomes of a pod that cannot be spread."""

    DO_NOT_SCHEDULE = "DoNotSchedule"
    SCHEDULE_ANYWAY = "ScheduleAnyway"


class Spread(Model):
    """How the pods of a revision are spread."""

    topology_key: str = restart(min_length=1, max_length=316, pattern=r"^[A-Za-z0-9./_-]+$")
    """The node label whose values are the places, as `topology.kubernetes.io/zone` or `kubernetes.io/hostname`."""
    max_skew: int = restart(1, ge=1, le=100)
    """Most pods that one place may have more than the one with the fewest."""
    when_unsatisfiable: WhenUnsatisfiable = restart(WhenUnsatisfiable.SCHEDULE_ANYWAY)
    """`DoNotSchedule` leaves a pod waiting rather than uneven."""


class Pod(Model):
    """What a cluster's own rules ask of the serving pods. A change makes new pods."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *_names("labels"),
        *_names("annotations"),
        Rule(
            "self.env.all(each, self.env.exists_one(other, other.name == each.name))",
            "`env` must name each variable once: take the second one out",
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        ),
    )

    labels: dict[str, Annotated[str, Field(max_length=63)]] = restart({}, max_length=32)
    """Labels beside the operator's own, as cost allocation or network policies ask for."""
    annotations: dict[str, Annotated[str, Field(max_length=4000)]] = restart({}, max_length=32)
    """Annotations, as service meshes and log collectors read them."""
    env: tuple[Variable, ...] = restart((), max_length=64)
    """Environment variables of the server. Settings of vLLM belong to `engine`."""
    priority_class_name: str | None = restart(None, min_length=1, max_length=253)
    """PriorityClass of the pods: which of them may push others off a full node."""
    image_pull_secrets: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = restart((), max_length=10)
    """Secrets of the pipeline's namespace to pull images with, also for the index Job; beside the operator's own."""
    spread: tuple[Spread, ...] = restart((), max_length=5)
    """How the pods of a revision are spread over zones and nodes."""
