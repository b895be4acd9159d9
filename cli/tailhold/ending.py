"""What a Job leaves in its termination log: JSON that the operator reads, within kubelet's limit."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailhold_api.conditions import Reason
from tailhold_server.ingest.report import BuildReport

ENDING_BYTES = 4096
"""kubelet cuts what is longer, and JSON that is cut is none."""
_MOST_FAILURES = 40
_LOG = "/dev/termination-log"


def succeeded(report: BuildReport) -> str:
    """The outcome, with as many of the failures as there is room for; all stand in the Job's log."""
    said = report.model_dump(mode="json", by_alias=True)
    body = {key: said[key] for key in ("snapshot", "documents", "failedDocuments", "chunks")}
    failures: list[Any] = said["failures"][:_MOST_FAILURES]
    for kept in range(len(failures), -1, -1):
        text = _json({**body, "failures": failures[:kept]})
        if len(text.encode()) <= ENDING_BYTES:
            break
    return text


def failed(reason: Reason, message: str) -> str:
    """Why there is no outcome; a long message is cut at its end."""
    room = len(message)
    while len((text := _json({"reason": reason.value, "message": message[:room]})).encode()) > ENDING_BYTES:
        room -= max(1, room // 10)
    return text


def write_ending(env: Mapping[str, str], text: str) -> None:
    """Write it where kubelet looks; outside a container there is no such file, and none is made."""
    path = Path(env.get("TAILHOLD_TERMINATION_LOG") or _LOG)
    if "TAILHOLD_TERMINATION_LOG" in env or os.access(path, os.W_OK):
        path.write_text(text, errors="backslashreplace")


def _json(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
