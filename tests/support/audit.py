"""The API server's audit log: who asked for what."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CREATED = 201
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def events(log: Path, user: str, *, after: str = "") -> Iterator[dict[str, Any]]:
    """Each answered request of `user` that was received after the RFC 3339 time `after`."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the last line may be half written
        if event["user"]["username"] == user and event["requestReceivedTimestamp"] > after:
            yield event


def used(found: Iterator[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """(API group, resource with subresource, verb) of each request for a resource."""
    return {right for event in found if "resource" in event.get("objectRef", {}) for right in _rights(event)}


def _rights(event: dict[str, Any]) -> set[tuple[str, str, str]]:
    ref = event["objectRef"]
    sub = f"/{ref['subresource']}" if ref.get("subresource") else ""
    # A server-side apply that makes an object is logged as a patch and needs the right to create as well.
    made = {"create"} if event.get("responseStatus", {}).get("code") == CREATED else set()
    return {(ref.get("apiGroup", ""), ref["resource"] + sub, verb) for verb in {event["verb"]} | made}


def granted(roles: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """What the rules of some Roles and ClusterRoles grant."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role.get("rules") or []
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for verb in rule["verbs"]
    }
