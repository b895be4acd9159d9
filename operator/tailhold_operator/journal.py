"""Log lines for machines: one JSON object each, with names and counts, never a question or an answer."""

import json
import logging
import sys
from datetime import UTC, datetime

_FIELDS = ("object", "why", "seconds", "wait", "count")
"""What a line may carry beside its message."""


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.title(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_logging(level: str) -> None:
    """Our own lines from `level` on, others' from warnings on, all to the standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tailhold_operator").setLevel(level.upper())
