"""Waiting for a pipeline while saying what it waits for."""

import time
from collections.abc import Callable
from typing import Any

from tailhold.target import Target


class NotReadyError(Exception):
    """The pipeline cannot become ready without the user, or did not in time."""


def condition(pipeline: dict[str, Any], kind: str) -> dict[str, Any]:
    """One condition of a pipeline; an empty one where it has not been said yet."""
    found = [c for c in pipeline.get("status", {}).get("conditions", []) if c["type"] == kind]
    return dict(found[0]) if found else {"status": "Unknown", "reason": "Pending", "message": ""}


def is_ready(pipeline: dict[str, Any]) -> bool:
    """Whether the newest spec is what serves."""
    ready = condition(pipeline, "Ready")
    return bool(ready["status"] == "True" and ready.get("observedGeneration") == pipeline["metadata"]["generation"])


def is_stalled(pipeline: dict[str, Any]) -> bool:
    """Whether the operator has said of the newest spec that it cannot go on without the user."""
    stalled = condition(pipeline, "Stalled")
    return bool(stalled["status"] == "True" and stalled.get("observedGeneration") == pipeline["metadata"]["generation"])


def headline(pipeline: dict[str, Any]) -> str:
    """Why it is not ready yet, with the progress of the step that runs."""
    ready = condition(pipeline, "Ready")
    progress = pipeline.get("status", {}).get("progress")
    return f"{ready['reason']}: {_progress(progress) if progress else ready['message']}"[:110]


def _progress(progress: dict[str, Any]) -> str:
    total = f"/{progress['total']}" if progress.get("total") else ""
    eta = f", {progress['etaSeconds']} s left" if progress.get("etaSeconds") else ""
    return f"{progress['step']} {progress['done']}{total} {progress['unit']}{eta}"


def until_ready(
    target: Target, namespace: str, name: str, *, timeout_seconds: float, on_change: Callable[[str], None]
) -> dict[str, Any]:
    """The pipeline once it is ready; `on_change` hears each new headline. Raises NotReadyError."""
    deadline, last = time.monotonic() + timeout_seconds, ""
    while time.monotonic() < deadline:
        pipeline = target.get("ragpipeline", name, "-n", namespace)
        if pipeline is None:
            raise NotReadyError(f"there is no RagPipeline {name} in namespace {namespace}")
        if is_ready(pipeline):
            return pipeline
        if is_stalled(pipeline):
            raise NotReadyError(headline(pipeline))
        if (line := headline(pipeline)) != last:
            on_change(last := line)
        time.sleep(1)
    raise NotReadyError(f"not ready within {timeout_seconds:.0f} s: {last}")
