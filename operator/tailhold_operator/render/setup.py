"""What the operator's own settings add to the pods that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setup:
    """The part of a pod that no spec asks for."""

    image: str
    """Where the spec names none."""
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """The image's entry point where it is empty."""
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
