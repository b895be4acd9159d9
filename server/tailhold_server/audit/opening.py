"""The auditor that a pod part asks for."""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from tailhold_api.audit import AuditFolder, OnFailure, Recording
from tailhold_api.conditions import Reason
from tailhold_server.audit.auditor import Auditor, ChainAuditor, NoAuditor
from tailhold_server.audit.journal import Journal
from tailhold_server.audit.trouble import trouble
from tailhold_server.errors import StartError
from tailhold_server.service import Service
from tailhold_server.settings import ServerSettings

_LOG = logging.getLogger(__name__)


async def open_auditor(service: Service, first: Recording, settings: ServerSettings) -> Auditor:
    """Takes the pod's folder and writes a first record. `first` holds until there is content in force.

    Raises StartError where nothing can be written and the pipeline refuses answers without a record.
    """
    sink = service.pod.audit_sink
    if sink is None:
        return NoAuditor()
    folder = _folder(sink.pvc, settings.claims) / service.pod.pipeline / (settings.pod_name or socket.gethostname())
    journal = Journal(
        folder,
        {"pipeline": service.pod.pipeline, "pod": folder.name, "podDigest": service.pod_digest},
        lambda: (service.recording or first).retention_days,
        service.telemetry,
    )
    await asyncio.to_thread(_open, journal.open, folder, first.on_failure)
    journal.start()
    return ChainAuditor(journal, service.pod_digest)


def _open(attempt: Callable[[], None], folder: Path, on_failure: OnFailure) -> None:
    try:
        attempt()
    except Exception as error:  # whatever stands in the folder: `Continue` starts
        words = f"audit records cannot be written to {folder}: {trouble(error)}"
        if on_failure is OnFailure.REFUSE:
            raise StartError(Reason.START_FAILED, words, final=False) from error
        _LOG.error("%s", words)


def _folder(sink: AuditFolder, claims: Path) -> Path:
    claim = claims / sink.claim_name
    folder = (claim / sink.path).resolve()
    if not folder.is_relative_to(claim.resolve()):
        raise StartError(Reason.START_FAILED, f"audit.sink.pvc.path leads out of the claim at {claim}")
    return folder
