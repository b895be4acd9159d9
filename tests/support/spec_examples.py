"""Specs that the tests start from."""

import copy
from typing import Any

MINIMAL: dict[str, Any] = {
    "generator": {"model": {"pvc": {"claimName": "models", "path": "smollm2"}}},
    "embedder": {"model": {"pvc": {"claimName": "models", "path": "minilm"}}, "dimension": 384},
    "index": {"store": {"claimName": "snapshots"}},
    "corpus": {"sources": [{"name": "handbook", "pvc": {"claimName": "documents"}}]},
}


def merged(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A deep copy of `base` with `change` laid over it; lists and scalars are replaced."""
    out = copy.deepcopy(base)
    for key, value in change.items():
        old = out.get(key)
        out[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else copy.deepcopy(value)
    return out


_NEIGHBOURS: dict[str, Any] = {"topologyKey": "kubernetes.io/hostname"}
BESIDE: dict[str, dict[str, Any]] = {
    "audit": {"sink": {"pvc": {"claimName": "audit"}}},
    "env[]": {"name": "A"},
    "otlp": {"endpoint": "http://collector:4318"},
    "podAffinityTerm": _NEIGHBOURS,
    "preferredDuringSchedulingIgnoredDuringExecution[]": {"weight": 1},
    "requiredDuringSchedulingIgnoredDuringExecution[]": _NEIGHBOURS,
    "sources[]": {"name": "a"},
}
"""What an object on the way to a leaf needs besides: by the step that leads to it."""


def at(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """`value` as the leaf of nested objects; a step `name[]` is a list of one."""
    for depth, step in enumerate(reversed(path)):
        value = merged(BESIDE.get(step, {}), value) if isinstance(value, dict) and depth else value
        value = {step[:-2]: [value]} if step.endswith("[]") else {step: value}
    return dict(value)
