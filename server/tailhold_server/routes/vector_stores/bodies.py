"""Vector stores, files and results in OpenAI's shape."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tailhold_server.handlers.search import Hit
from tailhold_server.handlers.stored import FileState, StoredFile
from tailhold_server.ingest.report import Why
from tailhold_server.uploads.left import Batch

_CODES = {Why.UNSUPPORTED: "unsupported_file", Why.UNREADABLE: "server_error", Why.CRASHED: "server_error"}


def store_body(name: str, pipeline: str, counts: Counter[FileState], size: int) -> dict[str, Any]:
    """The pipeline as a vector store."""
    busy = counts[FileState.IN_PROGRESS] > 0
    return {
        "id": name,
        "object": "vector_store",
        "created_at": 0,
        "name": pipeline,
        "usage_bytes": size,
        "file_counts": counts_body(counts),
        "status": "in_progress" if busy else "completed",
        "expires_after": None,
        "expires_at": None,
        "last_active_at": None,
        "metadata": {},
    }


def counts_body(counts: Counter[FileState]) -> dict[str, int]:
    """How many files are how far."""
    return {state.value: counts[state] for state in FileState} | {"total": counts.total()}


def stored_body(store: str, file: StoredFile) -> dict[str, Any]:
    """A file of the vector store."""
    return {
        "id": file.file_id,
        "object": "vector_store.file",
        "created_at": file.created_at,
        "vector_store_id": store,
        "usage_bytes": file.bytes,
        "status": file.state.value,
        "last_error": _error(file),
        "attributes": dict(file.attributes),
        "chunking_strategy": None,
        "filename": file.filename,
    }


def _error(file: StoredFile) -> dict[str, str] | None:
    if file.failure is None:
        return None
    return {"code": _CODES.get(file.failure.reason, "invalid_file"), "message": file.failure.hint}


def batch_body(store: str, name: str, batch: Batch, files: Sequence[StoredFile]) -> dict[str, Any]:
    """Files that were added together."""
    counts = Counter(each.state for each in files)
    state = FileState.IN_PROGRESS if counts[FileState.IN_PROGRESS] else FileState.COMPLETED
    return {
        "id": name,
        "object": "vector_store.files_batch",
        "created_at": batch.created_at,
        "vector_store_id": store,
        "status": FileState.CANCELLED.value if batch.cancelled else state.value,
        "file_counts": counts_body(counts),
    }


def results_body(queries: Sequence[str], hits: Sequence[Hit]) -> dict[str, Any]:
    """A page of results; there is no second one."""
    data = [
        {
            "file_id": each.file_id,
            "filename": each.filename,
            "score": round(each.score, 6),
            "attributes": dict(each.attributes),
            "content": [{"type": "text", "text": each.text}],
            "key": each.key,
        }
        for each in hits
    ]
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(queries),
        "data": data,
        "has_more": False,
        "next_page": None,
    }
