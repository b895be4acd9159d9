"""kstatus for custom resources, as cli-utils computes it: deletion, generation, its two conditions, Ready."""

from typing import Any


def kstatus(manifest: dict[str, Any]) -> str:
    metadata, status = manifest["metadata"], manifest.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    for each in status.get("conditions", ()):
        if each["status"] == "True" and each["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if each["type"] == "Reconciling" else "Failed"
    ready = next((each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"


def kubectl_waits_for(manifest: dict[str, Any], kind: str) -> bool:
    """Whether `kubectl wait --for=condition=...` ends: the condition is True and speaks of this generation."""
    found = (each for each in manifest.get("status", {}).get("conditions", ()) if each["type"] == kind)
    told = next(found, {"status": "Unknown"})
    return told["status"] == "True" and told.get("observedGeneration", 0) >= manifest["metadata"]["generation"]
