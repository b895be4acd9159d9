"""Archives over http: fetched whole, proved by digest, read member by member and never unpacked to disk."""

import hashlib
import lzma
import os
import ssl
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO

import httpx

from tailhold_api.sources import ArchiveDocuments
from tailhold_server.ingest.report import UnreadableError, Why

ARCHIVE_BYTES = 2 << 30
"""Largest archive that is fetched."""
CONTENT_BYTES = 8 << 30
"""Most that its members may unpack to together: beyond it the archive is a bomb."""
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,  # a zip's name that says it is UTF-8 and is not
)
"""What the readers of archives raise for one that is damaged, or of a kind that they do not know."""
_TRIES = 3
_TIMEOUT = httpx.Timeout(30.0)
_BLOCK = 1 << 20

Member = tuple[str, bytes | UnreadableError]
Wanted = Callable[[str], bool]


def open_archive(archive: ArchiveDocuments, wanted: Wanted, file_bytes: int) -> Iterator[Member]:
    """The wanted members. Raises UnreadableError where nothing of the archive can be had."""
    with tempfile.TemporaryFile() as file:
        _fetch(archive, file)
        yield from read_archive(file, wanted, file_bytes)


def read_archive(file: IO[bytes], wanted: Wanted, file_bytes: int) -> Iterator[Member]:
    """The wanted members of a zip or tar file by name; a link, or a path that leads out, is refused."""
    file.seek(0)
    is_zip = zipfile.is_zipfile(file)
    file.seek(0)
    left = CONTENT_BYTES
    try:
        for path, data in _zip(file, wanted, file_bytes) if is_zip else _tar(file, wanted, file_bytes):
            left -= len(data) if isinstance(data, bytes) else 0
            if left < 0:
                raise UnreadableError(Why.TOO_LARGE, f"it unpacks to over {CONTENT_BYTES} bytes")
            yield path, data
    except _BROKEN as error:
        raise UnreadableError(Why.BROKEN, str(error)) from error


def _fetch(archive: ArchiveDocuments, file: IO[bytes]) -> None:
    authorities = _authorities()
    for attempt in range(1, _TRIES + 1):
        try:
            got = _download(archive.url, file, authorities)
            break
        except httpx.InvalidURL as error:
            raise UnreadableError(Why.UNREACHABLE, f"{archive.url} is no URL: {error}") from error
        except httpx.HTTPError as error:
            status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0
            if attempt == _TRIES or 400 <= status < 500:
                raise UnreadableError(Why.UNREACHABLE, f"{archive.url}: {error}") from error
            time.sleep(2 ** (attempt - 1))
    if got != archive.sha256:
        raise UnreadableError(Why.BROKEN, f"{archive.url}: expected sha256 {archive.sha256}, got {got}")


def _authorities() -> ssl.SSLContext:
    """Those of the file that `SSL_CERT_FILE` names, or else the public ones."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        named = os.environ.get("SSL_CERT_FILE", "")
        raise UnreadableError(Why.UNREACHABLE, f"`SSL_CERT_FILE` is {named}: {error}") from error


def _download(url: str, file: IO[bytes], authorities: ssl.SSLContext) -> str:
    file.seek(0)
    file.truncate()
    total = hashlib.sha256()
    with httpx.stream("GET", url, follow_redirects=True, timeout=_TIMEOUT, verify=authorities) as response:
        response.raise_for_status()
        for block in response.iter_bytes(_BLOCK):
            total.update(block)
            if file.tell() + len(block) > ARCHIVE_BYTES:
                raise UnreadableError(Why.TOO_LARGE, f"{url} is over {ARCHIVE_BYTES} bytes")
            file.write(block)
    return total.hexdigest()


def _zip(file: IO[bytes], wanted: Wanted, file_bytes: int) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in sorted(archive.infolist(), key=lambda info: info.filename):
            if not info.is_dir() and wanted(path := _plain(info.filename)):
                yield path, _zip_member(archive, info, file_bytes)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, file_bytes: int) -> bytes | UnreadableError:
    if not _is_safe(info.filename):
        return UnreadableError(Why.UNSAFE_PATH)
    if info.flag_bits & 1:
        return UnreadableError(Why.ENCRYPTED)
    try:
        with archive.open(info) as member:
            return _limited(member, file_bytes)
    except _BROKEN as error:
        return UnreadableError(Why.BROKEN, str(error))


def _tar(file: IO[bytes], wanted: Wanted, file_bytes: int) -> Iterator[Member]:
    with tarfile.open(fileobj=file) as archive:
        for info in sorted(archive, key=lambda info: info.name):
            if info.isdir() or not wanted(path := _plain(info.name)):
                continue
            member = archive.extractfile(info) if info.isfile() and _is_safe(info.name) else None
            if member is None:
                yield path, UnreadableError(Why.UNSAFE_PATH)
            else:
                yield path, _limited(member, file_bytes)


def _limited(member: IO[bytes], file_bytes: int) -> bytes | UnreadableError:
    # What a header says of the size is the sender's word; what is read counts.
    data = member.read(file_bytes + 1)
    return data if len(data) <= file_bytes else UnreadableError(Why.TOO_LARGE, f"over {file_bytes} bytes")


def _plain(name: str) -> str:
    return name.replace("\0", "").removeprefix("./")


def _is_safe(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name
