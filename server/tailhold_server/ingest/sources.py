"""The files of a corpus source: found, matched against its globs, read within limits."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from tailhold_api.sources import ClaimFolder, CorpusSource
from tailhold_server.ingest.archive import open_archive
from tailhold_server.ingest.report import DocumentFailure, UnreadableError, Why, failure

FILE_BYTES = 64 << 20
"""A longer file is refused: a book in plain text has two MiB."""

_SKIPPED = frozenset({"lost+found"})
"""The file system's own. Folders that begin with two dots are a mounted ConfigMap's versions."""


@dataclass(frozen=True)
class Found:
    """A file to be read."""

    source: str
    path: str
    """Within the source."""
    url: str | None
    data: bytes


def is_wanted(path: str, include: Sequence[str], exclude: Sequence[str]) -> bool:
    """Whether the globs take a file. `**` is any number of folders; letter case makes no difference."""
    parts = path.casefold().split("/")
    return any(_matches(parts, glob) for glob in include) and not any(_matches(parts, glob) for glob in exclude)


def read_source(
    source: CorpusSource, claims: Path, config_maps: Path, file_bytes: int = FILE_BYTES
) -> Iterator[Found | DocumentFailure]:
    """Each wanted file in the order of its path, or why it cannot be read. Never raises for what it finds."""
    try:
        for path, data in _files(source, claims, config_maps, file_bytes):
            raw = os.fsencode(path)
            shown = raw.decode(errors="replace")  # a name need not be UTF-8
            if isinstance(data, UnreadableError):
                yield failure(f"{source.name}/{shown}", data.reason, data.detail)
            else:
                url = source.base_url + quote(raw) if source.base_url else None
                yield Found(source.name, shown, url, data)
    except UnreadableError as error:
        yield failure(source.name, error.reason, error.detail)


def _files(
    source: CorpusSource, claims: Path, config_maps: Path, file_bytes: int
) -> Iterator[tuple[str, bytes | UnreadableError]]:
    def wanted(path: str) -> bool:
        return is_wanted(path, source.include, source.exclude)

    if source.archive is not None:
        yield from open_archive(source.archive, wanted, file_bytes)
        return
    root = (
        claim_folder(source.pvc, claims)
        if source.pvc
        else config_maps / str(source.config_map and source.config_map.name)
    )
    closed: list[OSError] = []
    for path in sorted(_walk(root, closed.append)):
        if wanted(path):
            yield path, _read(root, path, file_bytes)
    for error in closed:
        yield (
            Path(error.filename).relative_to(root).as_posix(),
            UnreadableError(Why.UNREADABLE, str(error.strerror)),
        )


def claim_folder(folder: ClaimFolder, claims: Path) -> Path:
    """Where it is on this machine. Raises UnreadableError for a path that leads out of the claim."""
    claim = (claims / folder.claim_name).resolve()
    root = (claim / folder.path).resolve()
    if not root.is_relative_to(claim):
        raise UnreadableError(Why.UNSAFE_PATH, f"path {folder.path!r} of claim {folder.claim_name!r}")
    return root


def _walk(root: Path, closed: Callable[[OSError], None]) -> Iterator[str]:
    if not root.is_dir():
        raise UnreadableError(Why.UNREADABLE, f"{root} is no folder")
    for folder, folders, files in os.walk(root, onerror=closed):
        folders[:] = [name for name in folders if not name.startswith("..") and name not in _SKIPPED]
        for name in files:
            yield (Path(folder) / name).relative_to(root).as_posix()


def _read(root: Path, path: str, file_bytes: int) -> bytes | UnreadableError:
    real = (root / path).resolve()
    if not real.is_relative_to(root.resolve()):
        return UnreadableError(Why.UNSAFE_PATH)
    try:
        if not real.is_file():
            return UnreadableError(Why.UNREADABLE, "no plain file")
        if (size := real.stat().st_size) > file_bytes:
            return UnreadableError(Why.TOO_LARGE, f"{size} bytes of at most {file_bytes}")
        return real.read_bytes()
    except OSError as error:
        return UnreadableError(Why.UNREADABLE, str(error.strerror))


def _matches(parts: Sequence[str], glob: str) -> bool:
    return _match(parts, glob.casefold().split("/"))


def _match(parts: Sequence[str], globs: Sequence[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return any(_match(parts[skip:], globs[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _match(parts[1:], globs[1:])
