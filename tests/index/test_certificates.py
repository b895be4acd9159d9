"""Archives behind certificates that only a company's own authority vouches for."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tailhold_api.sources import ArchiveDocuments
from tailhold_server.ingest.archive import open_archive
from tailhold_server.ingest.report import UnreadableError

DIGEST = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vouches for itself, as a root does."""
    file = tmp_path_factory.mktemp("company") / "ca.crt"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", f"{file}.key", "-out", str(file)]
    subprocess.run(["openssl", *words, *names], check=True, capture_output=True)
    return file


@pytest.fixture(scope="module")
def archive(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchiveDocuments]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "docs.zip").write_bytes(b"hello")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, f"{certificate}.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield ArchiveDocuments(url=f"https://localhost:{server.server_port}/docs.zip", sha256=DIGEST)
    server.shutdown()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: None)


def refusal(archive: ArchiveDocuments) -> str:
    with pytest.raises(UnreadableError) as caught:
        list(open_archive(archive, lambda _: True, 100))
    return str(caught.value)


def test_an_unknown_authority_is_not_believed(archive: ArchiveDocuments) -> None:
    assert "CERTIFICATE_VERIFY_FAILED" in refusal(archive)


def test_the_authority_of_the_named_file_is(
    archive: ArchiveDocuments, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C114: the bytes came and had the digest; they are no archive, and that is what is said."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert "CERTIFICATE" not in refusal(archive)
    assert "sha256" not in refusal(archive)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_names_no_authority_is_said(
    archive: ArchiveDocuments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    file = tmp_path / "ca.crt"
    if content:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert f"`SSL_CERT_FILE` is {file}" in refusal(archive)
