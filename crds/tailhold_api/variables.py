"""Environment variables of our pods."""

from typing import ClassVar

from tailhold_api.fields import Model, Rule, restart
from tailhold_api.grammar import KEY, NAME, one_of
from tailhold_api.names import STAND_IN_VARIABLE

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
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"


class KeyRef(Model):
    """One key of a Secret or ConfigMap in the pipeline's namespace."""

    name: str = restart(**NAME)
    """The object's name."""
    key: str = restart(**KEY)
    """The key in it."""
    optional: bool = restart(False)
    """Start without the variable when there is no such key."""


class FieldRef(Model):
    """What only the running pod knows."""

    field_path: str = restart(
        max_length=40,
        pattern=r"^(metadata\.(name|namespace|uid)|spec\.(nodeName|serviceAccountName)|status\.(hostIP|podIP))$",
    )
    """`metadata.name`, `metadata.namespace`, `metadata.uid`, `spec.nodeName`, `spec.serviceAccountName`,
    `status.hostIP` or `status.podIP`."""


class ValueFrom(Model):
    """Where a value is. Exactly one of the fields is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "secretKeyRef",
            "configMapKeyRef",
            "fieldRef",
            accepted={"secretKeyRef": {"name": "hub", "key": "token"}},
            refused={"secretKeyRef": {"name": "hub", "key": "token"}, "fieldRef": {"fieldPath": "status.hostIP"}},
        ),
    )

    secret_key_ref: KeyRef | None = None
    """A key of a Secret, as a token. Read when a pod starts: a Secret that changes restarts nothing."""
    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap. Read when a pod starts."""
    field_ref: FieldRef | None = None
    """What only the running pod knows, as the address of its node, where agents of monitoring listen."""


class Variable(Model):
    """An environment variable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.name == '{STAND_IN_VARIABLE}'"
            f" || (!self.name.startsWith('TAILHOLD_') && !(self.name in {list(OWN_VARIABLES)!r}))",
            "`name` may not be one that the operator sets, nor begin with `TAILHOLD_`: use the field of the spec",
            {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
            {"name": "HF_HOME", "value": "/elsewhere"},
        ),
        Rule(
            f"self.name != '{STAND_IN_VARIABLE}' || !has(self.valueFrom)",
            f"`valueFrom` may not be given for `{STAND_IN_VARIABLE}`: that answers are made up has to be seen in the"
            " manifest; give `value`",
            {"name": STAND_IN_VARIABLE, "value": "firstTokenMilliseconds=40 slots=4"},
            {"name": STAND_IN_VARIABLE, "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        ),
        Rule(
            "!has(self.valueFrom) || self.value == ''",
            "`value` and `valueFrom` may not both be given: take one out",
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
            {"name": "HF_TOKEN", "value": "a", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ),
    )

    name: str = restart(min_length=1, max_length=200, pattern=_IDENTIFIER)
    """The variable."""
    value: str = restart("", max_length=4000)
    """Its value. Anyone who may read the pod may read it: secrets belong into a Secret, and are taken with
    `valueFrom`. As in every pod, `$(NAME)` is replaced by a variable that stands before; `$$(NAME)` is not."""
    value_from: ValueFrom | None = restart(None)
    """Where its value is, instead of `value`."""


class ObjectRef(Model):
    """A Secret or ConfigMap in the pipeline's namespace."""

    name: str = restart(**NAME)
    """The object's name."""
    optional: bool = restart(False)
    """Start without it when it is not there."""


class VariablesFrom(Model):
    """All keys of an object as variables. Exactly one of `secretRef` and `configMapRef` is given."""

    rules: ClassVar[tuple[Rule, ...]] = (
        one_of(
            "secretRef",
            "configMapRef",
            accepted={"secretRef": {"name": "hub"}},
            refused={"prefix": "HUB_"},
        ),
    )

    prefix: str | None = restart(None, min_length=1, max_length=100, pattern=_IDENTIFIER)
    """What is put before each name."""
    secret_ref: ObjectRef | None = None
    """A Secret."""
    config_map_ref: ObjectRef | None = None
    """A ConfigMap."""
