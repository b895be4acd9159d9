"""The edge to kopf, which carries the watch and nothing more: events become keys."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Protocol

import kopf

from tailhold_api import names
from tailhold_operator.controller import Controller
from tailhold_operator.kinds import CHILD_KINDS, KINDS, label_of

_SELECTOR = f"{names.LABEL_PART_OF}=tailhold,{names.LABEL_PIPELINE_UID}"
"""What children carry; the API server sends no others."""
_ERROR_BACKOFFS = (1, 1, 2, 3, 5, 8, 13, 21, 34, 34)
"""Two minutes: longer than an API server takes to start again."""


class Memo(Protocol):
    """What handlers are given."""

    controller: Controller


def build_registry() -> kopf.OperatorRegistry:
    """All handlers, in a registry of their own."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)
    kopf.on.startup(registry=registry)(startup)
    kopf.on.cleanup(registry=registry)(cleanup)
    kopf.on.probe(registry=registry, id="work")(work)
    kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)(pipeline_event)
    for kind in CHILD_KINDS:
        group, _, version = KINDS[kind].api_version.rpartition("/")
        kopf.on.event(group, version, KINDS[kind].plural, registry=registry, id=kind.lower())(child_event)
    return registry


def build_settings() -> kopf.OperatorSettings:
    """How kopf watches: bounded in time everywhere, and leaving no trace in any object."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.process.ultimate_exiting_timeout = 20
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = _ERROR_BACKOFFS
    settings.watching.connect_timeout = 5
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.reconnect_backoff = 1
    for kind in CHILD_KINDS:
        group, _, version = KINDS[kind].api_version.rpartition("/")
        settings.watching.label_selectors[group, version, KINDS[kind].plural] = _SELECTOR
    return settings


async def login(**given: Any) -> kopf.ConnectionInfo | None:
    """From the pod's service account, or else a kubeconfig."""
    found = kopf.login_with_service_account(**given)
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}") for part in ("HOST", "PORT"))
    if found is None or not host:
        return found or kopf.login_with_kubeconfig(**given)
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(found, server=f"https://{address}:{port}")


async def startup(memo: Memo, **_: Any) -> None:
    """Begin to work."""
    memo.controller.start()


async def cleanup(memo: Memo, **_: Any) -> None:
    """End, and let the next one take over."""
    await memo.controller.stop()


async def work(memo: Memo, **_: Any) -> str:
    """Fails where anything stands still: kubelet then starts us again."""
    standstill = memo.controller.standstill()
    if standstill:
        raise kopf.PermanentError(standstill)
    return "goes on"


async def pipeline_event(event: Mapping[str, Any], memo: Memo, **_: Any) -> None:
    """A RagPipeline came, changed or went."""
    memo.controller.heard(dict(event["object"]), gone=event.get("type") == "DELETED")


async def child_event(event: Mapping[str, Any], memo: Memo, **_: Any) -> None:
    """Something happened to a child."""
    memo.controller.heard_of_child(label_of(dict(event["object"]), names.LABEL_PIPELINE_UID))
