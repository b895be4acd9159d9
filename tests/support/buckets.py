"""An S3-compatible store on loopback: moto's, with faults to order in front of it."""

import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import boto3
from hub import Faults
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

KEY, SECRET, BUCKET = "AKIATESTTESTTESTTEST", "not-a-secret", "models"
App = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


class Front:
    """moto checks no key by itself, and never fails."""

    def __init__(self, app: App, faults: Faults) -> None:
        self._app, self._faults = app, faults
        self.asked: list[str] = []
        self.sent: list[int] = []

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        ours = environ.get("HTTP_USER_AGENT", "").startswith("object_store")
        if not ours:  # who puts the test's objects there
            return self._app(environ, start)
        self.asked.append(environ["PATH_INFO"])
        if f"Credential={KEY}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            return _error(start, "403 Forbidden", "InvalidAccessKeyId")
        if "HTTP_RANGE" not in environ:
            return self._app(environ, start)
        if self._faults.strikes("busy"):
            return _error(start, "503 Service Unavailable", "SlowDown")
        body = b"".join(self._app(environ, start))
        if self._faults.strikes("wrong"):
            body = bytes([body[0] ^ 1]) + body[1:]
        if self._faults.strikes("cut"):
            body = body[: len(body) // 2]
        self.sent.append(len(body))
        return [body]


def _error(start: StartResponse, status: str, code: str) -> Iterable[bytes]:
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message></Error>'.encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def bucket(
    faults: Faults | None = None, certificates: ssl.SSLContext | None = None
) -> Iterator[tuple[str, Any, Front]]:
    """Its address, a client that may put objects into the bucket, and what was asked of it by the product."""
    for account in s3_backends.values():  # moto keeps its buckets for the whole process
        for backend in account.values():
            backend.reset()
    front = Front(DomainDispatcherApplication(create_backend_app), faults or Faults())
    server = make_server("127.0.0.1", 0, front, threaded=True, ssl_context=certificates)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http{'s' if certificates else ''}://127.0.0.1:{server.server_port}"
    client = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        verify=not certificates,
    )
    client.create_bucket(Bucket=BUCKET)
    try:
        yield url, client, front
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def upload(client: Any, folder: Path, prefix: str) -> None:
    """Every file of a folder."""
    for each in sorted(folder.rglob("*")):
        if each.is_file():
            name = each.relative_to(folder).as_posix()
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=each.read_bytes())
