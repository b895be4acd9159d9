"""A real Kubernetes on one small Linux machine, for the demo and the tests."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailhold_local.cluster import Cluster
    from tailhold_local.errors import LocalError
    from tailhold_local.lifecycle import Status, down, status, up

__all__ = ["Cluster", "LocalError", "Status", "down", "status", "up"]

_HOMES = {"Cluster": "cluster", "LocalError": "errors"}


def __getattr__(name: str) -> Any:
    """Import on first use, so that naming this package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'lifecycle')}"), name)
