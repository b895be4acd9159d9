"""Uploads as documents to be indexed."""

from collections.abc import Iterator
from pathlib import Path

from tailhold_api.sources import UPLOADS, Uploads
from tailhold_server.errors import ServeError
from tailhold_server.ingest.report import DocumentFailure, UnreadableError, Why, failure
from tailhold_server.ingest.sources import Found, claim_folder
from tailhold_server.uploads.folder import Folder
from tailhold_server.uploads.names import shown_name


def uploads_folder(uploads: Uploads, claims: Path) -> Path:
    """Where they are on this machine. Raises UnreadableError for a path that leads out of the claim."""
    return claim_folder(uploads.pvc, claims)


def read_uploads(uploads: Uploads, claims: Path) -> Iterator[Found | DocumentFailure]:
    """Each file of the corpus, by its id, or why it cannot be read. A folder that nobody has made yet is empty."""
    try:
        folder = Folder(uploads_folder(uploads, claims))
        whole, damaged = folder.survey()
        for name, entry in whole.items():
            if entry.added and (found := _read(folder, name, entry.about.filename)):
                yield found
        for name, why in damaged.items():
            yield failure(f"{UPLOADS}/{name}", Why.UNREADABLE, why)
    except UnreadableError as error:
        yield failure(UPLOADS, error.reason, error.detail)
    except ServeError as error:
        yield failure(UPLOADS, Why.UNREADABLE, error.message)


def _read(folder: Folder, name: str, filename: str) -> Found | DocumentFailure | None:
    """None for one that was deleted since."""
    path = f"{name}/{shown_name(filename)}"
    try:
        if (kept := folder.content(name)) is None:
            return None
        with kept[1] as file:
            return Found(UPLOADS, path, None, file.read())
    except ServeError as error:
        return failure(f"{UPLOADS}/{path}", Why.UNREADABLE, error.message)
    except OSError as error:
        return failure(f"{UPLOADS}/{path}", Why.UNREADABLE, str(error.strerror))
